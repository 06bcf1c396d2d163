"""``slackwater bench fuzz``: random joins against DuckDB.

Each case has 2 to 4 inputs of random columns of all Arrow types with values at the edges, files in all
formats, a random condition, windows, shards and disorder. What comes out must be what DuckDB gives, or exact
arithmetic where DuckDB is inexact; a row that is not joined must be in ``late``. A case may be refused in clear
words; how many are is printed. Anything else is a finding: the command prints how to try it again, and ends with
exit code 1. Cases run in a process of their own, so that a crash is a finding too.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import yaml

from slackwater.pipelines.bench.fuzz.cases import make_case
from slackwater.pipelines.bench.fuzz.judge import Overdue, Runner, Verdict, judge
from slackwater.pipelines.bench.report import Report, Table
from slackwater.transforms.errors import SlackwaterError

_SECONDS: Final = {"local": 20, "beam": 60, "spark": 120}
"""After which a case hangs."""


@dataclass
class Tally:
    """What became of the cases so far."""

    kinds: Counter[str] = field(default_factory=Counter)
    truths: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    late: Counter[str] = field(default_factory=Counter)
    results: int = 0
    with_results: int = 0
    findings: list[tuple[int, str]] = field(default_factory=list)

    def add(self, number: int, verdict: Verdict) -> None:
        self.kinds[verdict.kind] += 1
        self.results += verdict.results
        self.with_results += verdict.results > 0
        self.truths[verdict.by] += verdict.kind == "joined"
        self.late += verdict.late
        if verdict.kind == "refused":
            self.refusals[_shape(verdict.text)] += 1
        if verdict.kind == "finding":
            self.findings.append((number, verdict.text))


def _shape(message: str) -> str:
    """A message without what differs from case to case."""
    message = re.sub(r"\b[abcd]\.\w+|'[^']*'|\b\d[\d.]*", "…", message.split("\n", 1)[0])
    return re.sub(r"^.*?: (?=where)", "", message)[:110]


def run(options: argparse.Namespace, report: Report) -> None:
    """Try the cases, and show what became of them; raise on a finding."""
    if options.only is not None:
        options.first, options.cases = options.only, 1
        _say_case(report, options)
    started = time.perf_counter()
    tally = Tally()
    for number, verdict in _verdicts(options):
        tally.add(number, verdict)
        if verdict.kind == "finding":
            report.say(f"FINDING in case {number} of seed {options.seed}: {verdict.text}")
            report.say(f"  slackwater bench fuzz --runner {options.runner} --seed {options.seed} "
                       f"--rows {options.rows} --only {number}")  # fmt: skip
            if len(tally.findings) >= options.keep_going:
                break
    _report(report, tally, time.perf_counter() - started)
    if tally.findings:
        raise SlackwaterError(f"{len(tally.findings)} findings; what is told of each above tries it again")


def _say_case(report: Report, options: argparse.Namespace) -> None:
    case = make_case(options.seed, options.only, options.rows)
    template = yaml.safe_load(case.template(Path(".")))
    report.say(yaml.safe_dump(template, sort_keys=False, allow_unicode=True))
    for i in case.inputs:
        report.say(f"{i.name}: {len(i.times)} rows, {i.format}, {i.files} files")
        report.say(i.table.schema.to_string())


def _report(report: Report, tally: Tally, seconds: float) -> None:
    total = sum(tally.kinds.values())
    joined = tally.kinds["joined"]
    truths = ", ".join(f"{by} {n:,}" for by, n in tally.truths.items() if by)
    report.say(
        f"{total:,} joins, {total / seconds:,.0f}/s: {joined:,} right ({tally.with_results:,} with results, "
        f"{tally.results:,} in all; truth by {truths}), "
        f"{tally.kinds['refused']:,} refused, {len(tally.findings)} findings"
    )
    table = Table("what", "of it", "count")
    for by, n in sorted(tally.truths.items()):
        if by:
            table.add("right", f"truth by {by}", n)
    for why, n in sorted(tally.late.items()):
        table.add("late rows", why, n)
    for message, n in tally.refusals.most_common(12):
        table.add("refused", message, n)
    for number, text in tally.findings:
        table.add("finding", text, number)
    report.add(table)


def _verdicts(options: argparse.Namespace) -> Iterator[tuple[int, Verdict]]:
    """Yield the verdict on every case; one that ends its process, or that hangs, is a finding."""
    context = multiprocessing.get_context("spawn")
    number, end = options.first, options.first + options.cases
    while number < end:
        receive, send = context.Pipe(duplex=False)
        worker = context.Process(target=_work, args=(send, options, number, end))
        worker.start()
        send.close()
        patience = 120 if options.runner != "spark" else 300
        try:
            while number < end and receive.poll(_SECONDS[options.runner] + patience):
                patience = 0
                yield number, receive.recv()
                number += 1
            fault = "hangs"
        except EOFError:
            fault = "ends its process"
        finally:
            worker.kill() if worker.is_alive() and number < end else None
            worker.join()
        if number < end:
            yield number, Verdict("finding", f"the case {fault} (exit code {worker.exitcode})")
            number += 1


def _work(send: Connection, options: argparse.Namespace, first: int, end: int) -> None:
    """Judge cases and send the verdicts."""
    with runner(options.runner) as run:
        for number in range(first, end):
            send.send(judged(options.seed, number, run, options.rows, _SECONDS[options.runner]))


def judged(seed: int, number: int, run: Runner, rows: int, seconds: int = 60) -> Verdict:
    """Return the verdict on one case; one that takes longer than ``seconds`` is a finding."""

    def overdue(*_: object) -> None:
        raise Overdue(f"the case takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, overdue)
    signal.alarm(seconds)
    try:
        return judge(make_case(seed, number, rows), run, scratch())
    except Overdue as error:
        return Verdict("finding", str(error))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def scratch() -> str | None:
    """Return a folder in memory if there is one."""
    memory = "/dev/shm"
    return memory if os.access(memory, os.W_OK) else None


@contextmanager
def runner(name: str) -> Iterator[Runner]:
    """Yield what runs a pipeline, on Spark in one session for all."""
    if name == "local":
        from slackwater.pipelines.runners.local import runner as local

        yield local.run
    elif name == "beam":
        from slackwater.pipelines.runners.beam import runner as run_beam

        yield run_beam.run
    else:
        from slackwater.pipelines.runners.spark import runner as run_spark
        from slackwater.transforms.spark.session import start_session

        session: Any = start_session(app="slackwater bench fuzz")
        try:
            yield lambda pipeline: run_spark.run(pipeline, session=session)
        finally:
            session.stop()
