"""The experiments of the join papers in small: what does not depend on the machine must have its shape."""

import io

import numpy as np
import pytest
from rich.console import Console

from slackwater.pipelines.bench import experiments
from slackwater.pipelines.bench.experiments import Row
from slackwater.pipelines.bench.joins import pwjoin
from slackwater.pipelines.bench.registry import run_bench
from slackwater.plugins.join.punctuated.cost_model import expected_state


def test_pwjoin_has_the_shape_of_its_paper() -> None:
    rows = pwjoin.section(rows=20_000, repeat=0)
    assert [row.shape for row in rows if not row.timed and not row.met] == []
    assert len(rows) == 7
    assert not any(row.timed for row in rows)


def test_a_section_prints_every_figure_and_says_what_was_missed() -> None:
    rows = [
        Row("one", {"state": 1234.5, "saved": "9%"}, "small", True),
        Row("two", {"ratio": 0.98765}, "above 1", False, timed=True),
    ]
    out = io.StringIO()
    experiments.table("", "Title", rows).print(Console(file=out, width=120))
    for text in ("Title", "1,234", "9%", "0.988", "yes", "NO", "above 1"):
        assert text in out.getvalue()


def test_options_of_the_bench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(pwjoin, "section", lambda: [Row("case", {"state": 1})])
    run_bench("joins", "--only", "pwjoin")
    assert "case" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run_bench("joins", "--only", "nothing")
    assert "invalid choice: 'nothing'" in capsys.readouterr().err


def test_the_equation_is_what_counting_gives() -> None:
    """Uniform values, punctuations of one after the other at a constant rate: counted tuple by tuple."""
    rng = np.random.default_rng(3)
    rate, window, punctuation_rate, values = 50, 20.0, 2.0, 400
    ts = np.arange(0, 150, 1 / rate)
    value = rng.integers(values, size=len(ts))
    order = rng.permutation(values)
    rank = np.empty(values)
    rank[order] = np.arange(values)
    for now in (40.0, 80.0, 120.0, 149.0):
        over = rank[value] < punctuation_rate * now
        held = np.count_nonzero((ts <= now) & (ts >= now - window) & ~over)
        assert held == pytest.approx(expected_state(rate, window, punctuation_rate, now, values), rel=0.1)
    assert expected_state(50, 20, 2, 200, 400) == 0
    assert expected_state(50, 20, 2, 500, 400) == 0
    assert expected_state(50, 20, 2, 0, 0) == 0
