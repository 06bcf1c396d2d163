"""The steps of a join: batch by shard, flatten, join. DoFns carry state; the operator decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import apache_beam as beam
import pyarrow as pa
from apache_beam.coders import TupleCoder, VarIntCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import WindowedValue
from apache_beam.typehints.decorators import no_annotations

from slackwater.transforms.arrival.bad_rows import HIDDEN
from slackwater.transforms.beam.arrow import ArrowBatchCoder
from slackwater.transforms.beam.bounded_rows import GatherRows
from slackwater.transforms.beam.live import IdleLiveShard, LiveShard
from slackwater.transforms.beam.metrics import report
from slackwater.transforms.beam.outputs import ACCOUNTING, MAIN
from slackwater.transforms.beam.rows import RowReader
from slackwater.transforms.beam.runners import timers_come_too_late
from slackwater.transforms.beam.shard import pieces, run_shard
from slackwater.transforms.engine.account import Account
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.settings.plan import Plan
from slackwater.transforms.settings.time_unit import NANOS

BATCH_ROWS: Final = 1 << 14

Piece = tuple[int, tuple[int, pa.RecordBatch]]
"""(shard, (index of the input, rows))"""


class BatchRows(beam.DoFn):  # type: ignore[misc, unused-ignore]
    """Gathers the rows of a bundle into batches and splits these by shard.

    Rows of a live input are taken in the order in which the worker sees them, or in that of the arrival column.
    Those of a bounded one come in any order: without such a column, they are taken in order of event time.
    """

    def __init__(self, plan: Plan, which: int, reader: RowReader, live: bool) -> None:
        self._plan, self._which, self._reader, self._live = plan, which, reader, live
        self._place = 0
        self._rows: dict[Any, tuple[Any, list[Any]]] = {}

    def start_bundle(self) -> None:
        self._rows = {}

    def process(
        self, element: Any, stamp: Any = beam.DoFn.TimestampParam, window: Any = beam.DoFn.WindowParam
    ) -> Iterator[Piece]:
        oldest, rows = self._rows.get(window, (stamp, []))
        rows.append(element)
        self._rows[window] = min(oldest, stamp), rows
        if len(rows) >= BATCH_ROWS:
            yield from self._batch(self._rows.pop(window)[1])

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for window, (oldest, rows) in self._rows.items():
            for piece in self._batch(rows):
                yield WindowedValue(piece, oldest, [window])
        self._rows = {}

    def _batch(self, rows: Sequence[Any]) -> Iterator[Piece]:
        batch = self._reader.read(rows)
        for shard, part in pieces(self._plan, self._which, batch, self._place, self._live):
            yield shard, (self._which, part)
        self._place += len(rows)


class SplitBatches(beam.DoFn):  # type: ignore[misc, unused-ignore]
    """Splits batches by shard. Those of a bounded input that carry no place within it come in any order."""

    def __init__(self, plan: Plan, which: int, live: bool) -> None:
        self._plan, self._which, self._live = plan, which, live
        self._place = 0

    def process(self, element: pa.RecordBatch) -> Iterator[Piece]:
        schema = self._plan.schemas[self._plan.inputs[self._which]]
        hidden = [name for name in HIDDEN if name in element.schema.names]
        batch = element.select([*schema.names, *hidden])
        for shard, part in pieces(self._plan, self._which, batch, self._place, self._live):
            yield shard, (self._which, part)
        self._place += element.num_rows


class JoinShard(beam.DoFn):  # type: ignore[misc, unused-ignore]
    """Keeps the pieces of a shard until the window ends, then joins them in arrival order.

    For bounded inputs: the runner may deliver in any order, and fires the timer when all is there. Memory is
    bounded by the rows of one shard.
    """

    PIECES = BagStateSpec("pieces", TupleCoder((VarIntCoder(), ArrowBatchCoder())))
    END = TimerSpec("end", TimeDomain.WATERMARK)
    _HELD: Final = beam.DoFn.StateParam(PIECES)
    _END: Final = beam.DoFn.TimerParam(END)

    def __init__(self, plan: Plan, numbered: bool) -> None:
        self._plan, self._numbered = plan, numbered

    def process(
        self,
        element: Piece,
        held: Any = _HELD,
        end: Any = _END,
        window: Any = beam.DoFn.WindowParam,
    ) -> None:
        held.add(element[1])
        end.set(window.max_timestamp())

    @on_timer(END)
    def finish(self, shard: int = beam.DoFn.KeyParam, held: Any = _HELD) -> Iterator[Any]:
        """Join what has been kept."""
        yield from _joined(self._plan, shard, held.read(), self._numbered)
        held.clear()


class JoinGroup(beam.DoFn):  # type: ignore[misc, unused-ignore]
    """Joins the pieces of a shard, grouped, in arrival order.

    For runners that let time pass before a timer has given its rows: they would end what comes behind too soon.
    """

    def __init__(self, plan: Plan, numbered: bool) -> None:
        self._plan, self._numbered = plan, numbered

    def process(self, element: tuple[int, Iterable[tuple[int, pa.RecordBatch]]]) -> Iterator[Any]:
        yield from _joined(self._plan, *element, self._numbered)


def _joined(
    plan: Plan, shard: int, pieces_of_all: Iterable[tuple[int, pa.RecordBatch]], numbered: bool
) -> Iterator[Any]:
    """Yield the outputs of a shard, each with its tag."""
    for output in run_shard(plan, shard, pieces_of_all, numbered):
        if isinstance(output, Account):
            report(output.accounting, NANOS[plan.unit], output.accounting.max_bytes)
            yield beam.pvalue.TaggedOutput(ACCOUNTING, output.dumps())
        elif output[0] == MAIN:
            yield output[1]
        else:
            yield beam.pvalue.TaggedOutput(*output)


def join_batches(
    inputs: Mapping[str, beam.PCollection],
    plan: Plan,
    readers: Mapping[str, RowReader] | None = None,
    numbered: bool = False,
) -> dict[str, beam.PCollection]:
    """Apply the steps of a join; every output consists of record batches, except the accounting.

    Where all inputs are bounded, their rows are joined in arrival order when all are there; else on arrival.

    Args:
        inputs: PCollections by name; of rows where there is a reader for them, else of record batches.
        plan: the join.
        readers: how rows become batches.
        numbered: whether results and late rows get the hidden column with their number.
    """
    if numbered:
        refuse_unbounded(inputs, "ArrowJoin")
    windowing = same_windows(inputs)
    live = not all(pcollection.is_bounded for pcollection in inputs.values())
    steps: list[Any] = []
    for which, name in enumerate(plan.inputs):
        reader = (readers or {}).get(name)
        split: beam.DoFn
        if reader is None:
            split = SplitBatches(plan, which, live)
        elif not live and GatherRows.suits(inputs[name]):
            split = GatherRows(plan, which, reader)
        else:
            split = BatchRows(plan, which, reader, live)
        batched = beam.ParDo(split).with_output_types(tuple[int, tuple[int, pa.RecordBatch]])
        steps.append(inputs[name] | f"Batch {name}" >> batched)
    if len(steps) == 1 and not live:
        # Flatten keeps the stateful step apart from those before it only if it has several inputs. FnApiRunner
        # fuses them otherwise, and of two stateful steps in one stage it fires the timer of one.
        nothing = beam.FlatMap(_nothing).with_output_types(tuple[int, tuple[int, pa.RecordBatch]])
        steps.append(steps[0] | "Nothing" >> nothing)
    pieces_of_all = tuple(steps) | "Flatten" >> beam.Flatten()
    shard: beam.DoFn
    if live:
        live_step = LiveShard if plan.idle_timeout is None else IdleLiveShard
        shard = live_step(plan, windowing.allowed_lateness)
    elif timers_come_too_late(pieces_of_all):
        pieces_of_all |= "Group" >> beam.GroupByKey()
        shard = JoinGroup(plan, numbered)
    else:
        shard = JoinShard(plan, numbered)
    tags = (*plan.side_outputs, ACCOUNTING)
    joined = pieces_of_all | "Join" >> beam.ParDo(shard).with_outputs(*tags, main=MAIN)
    outputs = {tag: joined[tag] for tag in (MAIN, *tags)}
    for tag, pcollection in outputs.items():
        pcollection.element_type = bytes if tag == ACCOUNTING else pa.RecordBatch
    return outputs


def _nothing(piece: Piece) -> Iterator[Piece]:
    yield from ()


def refuse_unbounded(inputs: Mapping[str, beam.PCollection], what: str) -> None:
    """Raise if an input never ends, which ``what`` cannot do without."""
    for name, pcollection in inputs.items():
        if not pcollection.is_bounded:
            raise ConfigError(
                f"input {name!r} is unbounded, and {what} needs inputs that end; read bounded input, such as "
                "files",
                "input",
            )


def same_windows(inputs: Mapping[str, beam.PCollection]) -> Any:
    """Return how all inputs are windowed; raise if they differ, or have windows that merge."""
    (first, one), *others = inputs.items()
    windows = one.windowing.windowfn
    for name, pcollection in others:
        other = pcollection.windowing.windowfn
        if other != windows:
            raise ConfigError(
                f"inputs {first!r} and {name!r} have different windows, {_shown(windows)} and {_shown(other)}; "
                "rows join within a window, so give all inputs the same with WindowInto",
                "input",
            )
    if windows.is_merging():
        raise ConfigError(
            f"input {first!r} has windows that merge, {_shown(windows)}, and state is kept by window; use "
            "others, such as FixedWindows, or window the results",
            "input",
        )
    return one.windowing


def _shown(windows: Any) -> str:
    options = ", ".join(f"{name}={value}" for name, value in vars(windows).items())
    return f"{type(windows).__name__}({options})"


class ArrowJoin(beam.PTransform):  # type: ignore[misc, unused-ignore]
    """A join of PCollections of Arrow record batches, for pipelines that never unpack rows.

    Takes ``{input: PCollection[pa.RecordBatch]}``. Batches may carry the hidden arrival column; results and
    late rows do. Returns a mapping with the tags ``out``, those of the plan's ``side_outputs`` (record
    batches) and ``accounting`` (bytes for ``Account.loads``, one per shard that had rows).
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self._plan = plan

    @no_annotations
    def expand(self, inputs: dict[str, beam.PCollection]) -> dict[str, beam.PCollection]:
        return join_batches(inputs, self._plan, numbered=True)
