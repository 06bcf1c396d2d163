"""The guard between operators and strategies.

Operators call logic objects through it, those of the package and of third parties alike. What is handed out
cannot be written to (``arrays.frozen``). What comes back is checked before anything uses it (``returned``). What
a logic raises becomes an error that names the strategy, its distribution and the method. So a strategy that
breaks its contract ends the run with one sentence; it never changes a result in silence, nor reads memory that is
not its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NoReturn

import numpy as np

from slackwater.plugins.arrays import frozen, frozen_record, whole
from slackwater.plugins.contract import (
    Arrivals,
    Bools,
    DisorderLogic,
    Feedback,
    Float64s,
    Held,
    Int64s,
    JoinLogic,
    Matches,
    Released,
    Setting,
    SheddingLogic,
    Snapshot,
    Tuples,
)
from slackwater.plugins.guard import returned as check
from slackwater.transforms.errors import SlackwaterError, StrategyError
from slackwater.transforms.expressions.opcodes import Lost


def title(strategy: Any) -> str:
    """Name a strategy with its stage and distribution, as errors do."""
    stage, name = getattr(strategy, "stage", "a"), getattr(strategy, "name", type(strategy).__name__)
    return f"{stage} strategy {name!r} of {_distribution(type(strategy))}"


def _distribution(strategy: type[Any]) -> str:
    from slackwater.plugins.registry.manager import manager

    given = next((p.distribution for p in manager().strategies() if p.strategy is strategy), None)
    if given is not None:
        return given
    package = strategy.__module__.partition(".")[0]
    return package if package == "slackwater" else f"module {strategy.__module__}"


class Guard:
    """A logic object as operators call it. Members that it does not know are the logic's own."""

    required: ClassVar[Any]
    """The protocol whose members every logic has."""
    optional: ClassVar[tuple[str, ...]] = ()
    """Methods that a logic may have; the guard has those that its logic has."""

    def __init__(self, strategy: Any, setting: Setting, snapshot: Snapshot | None = None) -> None:
        self.strategy, self._setting = strategy, setting
        self.logic: Any = self._calling("build", strategy.build, setting, snapshot)
        lacking = missing(self.logic, self.required)
        if lacking:
            self._refuse("build", f"returned {check.kind(self.logic)}, which lacks {', '.join(lacking)}")
        for name in self.optional:
            if hasattr(self.logic, name):
                setattr(self, name, getattr(self, f"_{name}"))

    def __getattr__(self, name: str) -> Any:
        if name == "logic":
            raise AttributeError(name)
        return getattr(self.logic, name)

    def snapshot(self) -> Snapshot:
        kept: Snapshot = self._asked("snapshot", check.snapshot)
        return kept

    @property
    def nbytes(self) -> int:
        """Bytes of what the logic holds; 0 where it does not say."""
        return self._read("nbytes", 0, lambda value: check.number(value, ""))

    def blaming(self, method: str, function: Callable[..., Any], *given: Any) -> Any:
        """Use what a method has answered; what is wrong with it becomes an error that names the strategy."""
        try:
            return function(*given)
        except check.Refused as error:
            self._refuse(method, str(error), error)

    def _refuse(self, method: str, fault: str, cause: BaseException | None = None) -> NoReturn:
        raise StrategyError(
            f"{title(self.strategy)}: {method} {fault}; mend the strategy, or use another"
        ) from cause

    def _call(self, method: str, *given: Any) -> Any:
        return self._calling(method, getattr(self.logic, method), *given)

    def _calling(self, method: str, function: Callable[..., Any], *given: Any) -> Any:
        try:
            return function(*given)
        except (SlackwaterError, MemoryError, Lost):
            raise
        except Exception as error:
            self._raised(method, error, *given)

    def _raised(self, method: str, error: Exception, *given: Any) -> NoReturn:
        self._refuse(method, f"raised {type(error).__name__}: {error}{''.join(map(_place, given))}", error)

    def _asked(self, method: str, checked: Callable[..., Any], *given: Any) -> Any:
        """Call a method and return what ``checked`` makes of its answer."""
        return self.blaming(method, checked, self._call(method, *given))

    def _read(self, name: str, default: Any, checked: Callable[[Any], Any]) -> Any:
        """Return a property of the logic, checked."""
        return self.blaming(name, checked, getattr(self.logic, name, default))

    def _array(self, method: str, dtype: Any, shape: tuple[int, ...], *given: Any) -> Any:
        """Call a method that returns an array."""
        answer = self._call(method, *given)
        self.blaming(method, check.array, answer, dtype, shape)
        return whole(answer)

    def _held_cells(self) -> Any:
        width, m = self._setting.condition.width, len(self._setting.inputs)
        answer = self._call("held_cells")
        self.blaming("held_cells", check.held_cells, answer, width, m)
        return answer


def missing(logic: Any, protocol: Any) -> list[str]:
    """Return the members of a protocol that a logic lacks."""
    members = {*protocol.__annotations__, *(name for name in vars(protocol) if not name.startswith("_"))}
    return sorted(name for name in members if not hasattr(logic, name))


def _place(given: Any) -> str:
    """Say which rows a method was given."""
    if isinstance(given, Arrivals) and given.clock.size:
        return f" (at arrivals {given.clock.min()} to {given.clock.max()})"
    if isinstance(given, Released | Tuples | Held | Feedback) and given.ts.size:
        return f" (at {given.ts.size} tuples of event times {given.ts.min()} to {given.ts.max()})"
    return ""


class DisorderGuard(Guard):
    """The logic of a disorder strategy, guarded."""

    required = DisorderLogic
    optional = ("bounds_at", "slacks", "report", "held_cells")

    def __init__(self, strategy: Any, setting: Setting, snapshot: Snapshot | None = None) -> None:
        super().__init__(strategy, setting, snapshot)
        self._read("interval", None, check.interval)

    @property
    def interval(self) -> int | None:
        """Stream time in ticks between calls of ``adapt``, or None."""
        every: int | None = self.logic.interval
        return every

    def bounds(self, arrivals: Arrivals) -> Int64s:
        bounds: Int64s = self._array("bounds", check.INT64, (arrivals.ts.size,), frozen_record(arrivals))
        return bounds

    def adapt(self, feedback: Feedback) -> None:
        self._asked("adapt", check.nothing, frozen_record(feedback))

    def _bounds_at(self, progress: Int64s) -> Any:
        return self._array("bounds_at", check.INT64, progress.shape, frozen(progress))

    def _slacks(self, arrivals: Arrivals) -> Any:
        return self._array("slacks", check.INT64, (arrivals.ts.size,), frozen_record(arrivals))

    def _report(self) -> Any:
        return self._asked("report", check.report)


class SheddingGuard(Guard):
    """The logic of a shedding strategy, guarded."""

    required = SheddingLogic
    optional = ("bytes_after",)

    def __init__(self, strategy: Any, setting: Setting, snapshot: Snapshot | None = None) -> None:
        super().__init__(strategy, setting, snapshot)
        self._limited = self.memory is not None
        self.decays: bool = self._read("decays", None, check.flag)
        self.scores_are_chances: bool = self._read("scores_are_chances", False, check.flag)
        self.allocation: str = self._read("allocation", "variable", _allocation)
        _ = self.renewal

    @property
    def memory(self) -> Any:
        """What may be held; whether there is a limit never changes."""
        limit = self._read("memory", None, check.memory)
        if (limit is not None) != getattr(self, "_limited", limit is not None):
            self._refuse("memory", f"became {limit!r}, must stay a limit, or stay None")
        return limit

    @property
    def renewal(self) -> int:
        """Tuples for which scores stay good; 0 where the strategy does not say."""
        return self._read("renewal", 0, lambda value: check.number(value, ""))

    def scores(self, tuples: Tuples) -> Float64s:
        return self._scored("scores", tuples)

    def observe(self, tuples: Tuples) -> Float64s:
        """Score tuples that arrive; a logic that does not learn from them has ``scores`` alone."""
        return self._scored("observe" if hasattr(self.logic, "observe") else "scores", tuples)

    def _scored(self, method: str, tuples: Tuples) -> Float64s:
        found: Float64s = self._array(method, check.FLOAT64, (tuples.ts.size,), frozen_record(tuples))
        self.blaming(method, check.scores, found, self.scores_are_chances)
        return found

    def _bytes_after(self, tuples: int) -> Any:
        return self._asked("bytes_after", lambda value: check.number(value, ""), tuples)


def _allocation(value: Any) -> str:
    check.demand(value in ("fixed", "variable"), f"is {value!r}, must be 'fixed' or 'variable'")
    return str(value)


class JoinGuard(Guard):
    """The logic of a join strategy, guarded."""

    required = JoinLogic
    optional = (
        "punctuated_step", "limited_step", "held_cells", "fit", "bytes_for", "lifetimes", "use_disk", "owes",
        "finish",
    )  # fmt: skip

    def __init__(self, strategy: Any, setting: Setting, snapshot: Snapshot | None = None) -> None:
        super().__init__(strategy, setting, snapshot)
        self.reorders: bool = self._read("reorders", False, check.flag)
        if hasattr(self.logic, "judges"):
            self.judges: Bools = self._read("judges", None, self._judges)
        self._listed = 0
        self.sheds_by = "limited_step" if hasattr(self, "limited_step") else "held"
        """The method that says which tuples go for lack of memory."""

    def step(self, released: Released) -> Iterator[Matches]:
        """As the logic's; nothing happens before the first run is asked for."""
        return self._runs("step", released)

    def live(self) -> int:
        return int(self._asked("live", lambda value: check.number(value, "")))

    def held(self) -> Held:
        held: Held = self._call("held")
        self._listed = self.live()
        width, m = self._setting.condition.width, len(self._setting.inputs)
        self.blaming("held", check.held, held, width, m, self._listed)
        return Held._make(map(whole, held))

    def evict(self, victims: Bools) -> None:
        before = self.live()
        self._asked("evict", check.nothing, frozen(victims))
        left = before - int(np.count_nonzero(victims))
        if self.live() != left:
            self._refuse("evict", f"left {self.live()} tuples of {before}, must leave {left}")

    def _punctuated_step(self, released: Released, punctuations: Any) -> Iterator[Matches]:
        return self._runs("punctuated_step", released, frozen_record(punctuations))

    def _limited_step(self, released: Released, keep: Any) -> Iterator[Matches]:
        keep.live[:] = -1
        yield from self._runs("limited_step", released, frozen_record(keep)._replace(live=keep.live))
        if released.ts.size:
            self.blaming("limited_step", check.lived, keep)

    def _finish(self) -> Iterator[Matches]:
        return self._runs("finish", None)

    def _runs(self, method: str, released: Released | None, *given: Any) -> Iterator[Matches]:
        """Yield the runs of a step, each checked."""
        setting = self._setting
        tuples = () if released is None else (frozen_record(released),)
        n = 0 if released is None else released.ts.size
        values = [1] * len(setting.condition.classes)
        if len(setting.inputs) == 1:
            # Finished names the kind of punctuation, with as many values as the widest has.
            values = [max((len(p.cells) for p in setting.patterns), default=0)] * len(setting.patterns)
        checked = check.Runs(n, len(setting.inputs), values, setting.counts_only, self.reorders)
        found = self._call(method, *tuples, *given)
        if not hasattr(found, "__iter__"):
            self._refuse(method, f"returned {check.kind(found)}, must be an iterable of Matches")
        runs = iter(found)
        while True:
            try:
                run = next(runs)
            except StopIteration:
                break
            except (SlackwaterError, MemoryError, Lost):
                raise
            except Exception as error:
                self._raised(method, error, *tuples)
            self.blaming(method, checked.take, run)
            yield run if run.evicted is None else run._replace(evicted=run.evicted._make(map(whole, run.evicted)))
        self.blaming(method, checked.end)

    def _fit(self, tuples: int, heaps: int) -> None:
        self._asked("fit", check.nothing, tuples, heaps)

    def _bytes_for(self, tuples: int, heaps: int) -> Any:
        return self._asked("bytes_for", lambda value: check.number(value, ""), tuples, heaps)

    def _lifetimes(self) -> Any:
        return self._array("lifetimes", check.INT64, (self._listed,))

    def _use_disk(self, disk: Any) -> None:
        self._asked("use_disk", check.nothing, disk)

    def _owes(self) -> Any:
        return self._asked("owes", check.flag)

    @property
    def spilled(self) -> int:
        """Tuples that have been written to disk so far."""
        return self._read("spilled", 0, lambda value: check.number(value, ""))

    def _judges(self, value: Any) -> Any:
        # Where nothing is punctuated, it may speak of one pattern that there is not.
        n = max(1, len(self._setting.patterns))
        check.array(value, check.BOOL, (n,))
        return value


GUARDS = {"disorder": DisorderGuard, "join": JoinGuard, "shedding": SheddingGuard}


def guarded(strategy: Any, setting: Setting, snapshot: Snapshot | None = None) -> Any:
    """Build the logic of a strategy for one shard, new or from a snapshot, behind its guard."""
    return GUARDS[strategy.stage](strategy, setting, snapshot)
