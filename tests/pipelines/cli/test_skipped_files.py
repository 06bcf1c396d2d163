"""Files that a folder has beside those that are read: ``check`` lists them, and a run warns of them."""

from cli_calls import call
from runner_cases.bad_rows import TEMPLATE, write


def test_check_lists_files_and_a_run_warns_of_those_it_skipped(tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("a-1.csv", "b.tsv", "_SUCCESS"):
        (tmp_path / "in" / name).write_text("ts,k,n\n1,x,1\n")
    write(tmp_path)
    path = tmp_path / "t.yaml"
    path.write_text(TEMPLATE.replace("%(dir)s/a.csv", "%(dir)s/in") % {"dir": tmp_path, "out": tmp_path})
    done = call("check", path)
    assert done.exit_code == 0, done.output
    assert "    files: 1: a-1.csv; skipped: _SUCCESS (hidden), b.tsv (another ending)" in done.stdout
    done = call("run", path)
    assert "in': skipped b.tsv, as only files that end in .csv or .csv.gz are read" in done.stderr
