"""What the documents name is there: files, folders, headings that are linked, and commands."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("benchmarks", "ci", "docs", "examples", "pipelines", "plugins", "templates", "tests", "transforms")
PAGES = {
    str(path.relative_to(ROOT)): path for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
}
PAGES |= {f"benchmarks/{path.name}": path for path in (ROOT / "benchmarks").glob("*.md")}
HISTORY = "CHANGELOG.md"
"""Names files as they were called then."""


def paths():
    """Every file and folder of ours, relative to the root."""
    here = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts]
    return {"/" + str(path.relative_to(ROOT)) for path in [*here, *ROOT.glob("*"), *(ROOT / f for f in FOLDERS)]}


def named(text):
    """File names and folders of the code that a page sets as code, alternatives in braces one by one."""
    for found in re.findall(r"`([\w./{},-]+)`", text):
        options = re.search(r"\{([\w,/]+)\}", found)
        every = [found.replace(options[0], one) for one in options[1].split(",")] if options else [found]
        yield from (one for one in every if re.search(r"\w(\.py|\.md|/)$", one))


def missing(text, known):
    return [name for name in named(text) if not any(path.endswith("/" + name.strip("./")) for path in known)]


@pytest.mark.parametrize("page", sorted(PAGES.keys() - {HISTORY}))
def test_files_that_a_page_names_are_there(page):
    assert missing(PAGES[page].read_text(), paths()) == []


def test_a_file_that_is_not_there_is_seen():
    text = (
        "See `rows/size.py`, `transforms/{beam,spark}/`, `no/such.py`, `{beam,flunk}/`, `size.py` and `out.json`."
    )
    assert missing(text, paths()) == ["no/such.py", "flunk/"]


def headings(path):
    """Anchors of a page, as GitHub makes them."""
    lines = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL).splitlines()
    titles = [line.lstrip("#").strip().lower() for line in lines if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def broken(page, text):
    """Links of a page that lead nowhere on this disk."""
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" not in link:
            file, _, anchor = link.partition("#")
            to = (page.parent / file).resolve() if file else page
            if not to.exists() or (anchor and anchor not in headings(to)):
                yield link


@pytest.mark.parametrize("page", sorted(PAGES))
def test_links_lead_somewhere(page):
    assert list(broken(PAGES[page], PAGES[page].read_text())) == []


def test_a_link_that_leads_nowhere_is_seen():
    page = PAGES["README.md"]
    text = "[a](docs/spark.md) [b](docs/none.md) [c](docs/templates.md#choosevalues) [d](docs/templates.md#none)"
    assert list(broken(page, text)) == ["docs/none.md", "docs/templates.md#none"]
