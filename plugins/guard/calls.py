"""The guard between operators and strategies.

Operators call logic objects through it, those of the package and of third parties alike. What is handed out
cannot be written to (``arrays.frozen``). What comes back is checked before anything uses it (``returned``). What
a logic raises becomes an error that names the strategy, its distribution and the method. So a strategy that
breaks its contract ends the run with one sentence; it never changes a result in silence, nor reads memory that is
not its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, NoReturn

import numpy as np

from slackwater.plugins.arrays import frozen, frozen_record, whole
from slackwater.plugins.contract import (
    Arrivals,
    Bools,
    Disk,
    DisorderLogic,
    Feedback,
    Float64s,
    Held,
    Int8s,
    Int64s,
    JoinLogic,
    Keep,
    Limit,
    Logic,
    Matches,
    Punctuations,
    Released,
    Setting,
    SheddingLogic,
    Snapshot,
    Tuples,
)
from slackwater.plugins.errors import SlackwaterError, StrategyError
from slackwater.plugins.guard import returned as check
from slackwater.plugins.guard.adoption import adopted, declared_by, lacking


def title(strategy: Any) -> str:
    """Name a strategy with its stage and distribution, as errors do."""
    return f"{strategy.stage} strategy {strategy.name!r} of {_distribution(type(strategy))}"


def _distribution(strategy: type[Any]) -> str:
    from slackwater.plugins.registry.manager import manager

    given = next((p.distribution for p in manager().strategies() if p.strategy is strategy), None)
    if given is not None:
        return given
    package = strategy.__module__.partition(".")[0]
    return package if package == "slackwater" else f"module {strategy.__module__}"


class Guard:
    """A logic object as operators call it."""

    base: ClassVar[type[Logic]]
    """The base class that declares what a logic of the stage may have."""
    required: ClassVar[tuple[str, ...]]
    """What it must have, as there is no default for it."""

    def __init__(self, strategy: Any, setting: Setting, snapshot: Snapshot | None = None) -> None:
        self.strategy, self._setting = strategy, setting
        self._through: tuple[type[BaseException], ...] = (
            SlackwaterError,
            MemoryError,
            *setting.condition.failures,
        )
        """What a method may raise that is no fault of the strategy."""
        self.logic: Any = self._adopted(self._calling("build", strategy.build, setting, snapshot))
        lacks = lacking(self.logic, self.base, self.required)
        if lacks:
            self._refuse("build", f"returned {check.kind(self.logic)}, which lacks {', '.join(lacks)}")
        names = declared_by(self.base)
        self._own = frozenset(names) - frozenset(lacking(self.logic, self.base, names))
        """What the logic has of its own, rather than by default."""

    def snapshot(self) -> Snapshot:
        kept: Snapshot = self._asked("snapshot", check.snapshot, self.logic.snapshot)
        return kept

    def blaming(self, method: str, function: Callable[..., Any], *given: Any) -> Any:
        """Use what a method has answered; what is wrong with it becomes an error that names the strategy."""
        try:
            return function(*given)
        except check.Refused as error:
            self._refuse(method, str(error), error)

    def _adopted(self, logic: Any) -> Any:
        """Return what ``build`` has returned with all that the base class declares."""
        try:
            return adopted(logic, self.base)
        except TypeError as error:
            lacks = lacking(logic, self.base, self.required)
            fault = f"which lacks {', '.join(lacks)}" if lacks else "whose class cannot be extended"
            remedy = f"derive it from slackwater.plugins.{self.base.__name__}"
            self._refuse("build", f"returned {check.kind(logic)}, {fault}; {remedy}", error)

    def _refuse(self, method: str, fault: str, cause: BaseException | None = None) -> NoReturn:
        raise StrategyError(
            f"{title(self.strategy)}: {method} {fault}; mend the strategy, or use another"
        ) from cause

    def _calling(self, method: str, function: Callable[..., Any], *given: Any) -> Any:
        try:
            return function(*given)
        except self._through:
            raise
        except Exception as error:
            self._raised(method, error, *given)

    def _raised(self, method: str, error: Exception, *given: Any) -> NoReturn:
        self._refuse(method, f"raised {type(error).__name__}: {error}{''.join(map(_place, given))}", error)

    def _asked(self, method: str, checked: Callable[..., Any], function: Callable[..., Any], *given: Any) -> Any:
        """Call a method and return what ``checked`` makes of its answer."""
        return self.blaming(method, checked, self._calling(method, function, *given))

    def _array(self, method: str, dtype: Any, size: int, function: Callable[..., Any], *given: Any) -> Any:
        """Call a method that returns an array."""
        return self._checked(method, dtype, size, self._calling(method, function, *given))

    def _checked(self, method: str, dtype: Any, size: int, answer: Any) -> Any:
        self.blaming(method, check.array, answer, dtype, (size,))
        return whole(answer)

    def _cells(self, function: Callable[[], Any]) -> Any:
        """Call ``held_cells``."""
        width, m = self._setting.condition.width, len(self._setting.inputs)
        if "held_cells" not in self._own:
            return np.empty(0, np.int8), np.empty((0, width), np.int64)
        answer = self._calling("held_cells", function)
        self.blaming("held_cells", check.held_cells, answer, width, m)
        return answer


def _place(given: Any) -> str:
    """Say which rows a method was given."""
    if isinstance(given, Arrivals) and given.clock.size:
        return f" (at arrivals {given.clock.min()} to {given.clock.max()})"
    if isinstance(given, Released | Tuples | Held | Feedback) and given.ts.size:
        return f" (at {given.ts.size} tuples of event times {given.ts.min()} to {given.ts.max()})"
    return ""


class DisorderGuard(Guard, DisorderLogic):
    """The logic of a disorder strategy, guarded."""

    base = DisorderLogic
    required = ("bounds", "snapshot")

    def __init__(self, strategy: Any, setting: Setting, snapshot: Snapshot | None = None) -> None:
        super().__init__(strategy, setting, snapshot)
        self.needs_cells: bool = self.blaming("needs_cells", check.flag, self.logic.needs_cells)
        self.blaming("interval", check.interval, self.logic.interval)

    @property
    def interval(self) -> int | None:
        """Stream time in ticks between calls of ``adapt``, or None."""
        every: int | None = self.logic.interval
        return every

    def bounds(self, arrivals: Arrivals) -> Int64s:
        given = frozen_record(arrivals)
        bounds: Int64s = self._array("bounds", check.INT64, arrivals.ts.size, self.logic.bounds, given)
        return bounds

    def bounds_at(self, progress: Int64s) -> Int64s | None:
        if "bounds_at" not in self._own:
            return None
        bounds: Any = self._calling("bounds_at", self.logic.bounds_at, frozen(progress))
        return None if bounds is None else self._checked("bounds_at", check.INT64, progress.size, bounds)

    def slacks(self, arrivals: Arrivals) -> Int64s | None:
        if "slacks" not in self._own:
            return None
        slacks: Any = self._calling("slacks", self.logic.slacks, frozen_record(arrivals))
        return None if slacks is None else self._checked("slacks", check.INT64, arrivals.ts.size, slacks)

    def adapt(self, feedback: Feedback) -> None:
        self._asked("adapt", check.nothing, self.logic.adapt, frozen_record(feedback))

    def report(self) -> dict[str, float]:
        told: dict[str, float] = self._asked("report", check.report, self.logic.report)
        return told

    def held_cells(self) -> tuple[Int8s, Int64s]:
        cells: tuple[Int8s, Int64s] = self._cells(self.logic.held_cells)
        return cells


class SheddingGuard(Guard, SheddingLogic):
    """The logic of a shedding strategy, guarded."""

    base = SheddingLogic
    required = ("scores", "snapshot")

    def __init__(self, strategy: Any, setting: Setting, snapshot: Snapshot | None = None) -> None:
        self._limited: bool | None = None
        super().__init__(strategy, setting, snapshot)
        self._limited = self.memory is not None
        self.decays: bool = self.blaming("decays", check.flag, self.logic.decays)
        self.scores_are_chances: bool = self.blaming(
            "scores_are_chances", check.flag, self.logic.scores_are_chances
        )
        self.allocation: str = self.blaming("allocation", check.allocation, self.logic.allocation)
        _ = self.renewal

    @property
    def memory(self) -> Limit:
        """What may be held; whether there is a limit never changes."""
        limit: Limit = self.blaming("memory", check.memory, self.logic.memory)
        if self._limited not in (None, limit is not None):
            self._refuse("memory", f"became {limit!r}, must stay a limit, or stay None")
        return limit

    @property
    def renewal(self) -> int:
        """Tuples for which scores stay good; 0 where the strategy does not say."""
        return int(self.blaming("renewal", check.number, self.logic.renewal))

    @property
    def nbytes(self) -> int:
        """Bytes of what the logic has learnt; 0 where it does not say."""
        return int(self.blaming("nbytes", check.number, self.logic.nbytes))

    def bytes_after(self, tuples: int) -> int:
        return int(self._asked("bytes_after", check.number, self.logic.bytes_after, tuples))

    def scores(self, tuples: Tuples) -> Float64s:
        return self._scored("scores", self.logic.scores, tuples)

    def observe(self, tuples: Tuples) -> Float64s:
        """Score tuples that arrive; a logic that does not learn from them has ``scores`` alone."""
        return self._scored("observe" if "observe" in self._own else "scores", self.logic.observe, tuples)

    def _scored(self, method: str, function: Callable[[Tuples], Any], tuples: Tuples) -> Float64s:
        found: Float64s = self._array(method, check.FLOAT64, tuples.ts.size, function, frozen_record(tuples))
        self.blaming(method, check.scores, found, self.scores_are_chances)
        return found


class JoinGuard(Guard, JoinLogic):
    """The logic of a join strategy, guarded."""

    base = JoinLogic
    required = ("evict", "held", "live", "snapshot", "step")

    def __init__(self, strategy: Any, setting: Setting, snapshot: Snapshot | None = None) -> None:
        super().__init__(strategy, setting, snapshot)
        self.reorders: bool = self.blaming("reorders", check.flag, self.logic.reorders)
        kinds = len(setting.patterns)
        self.judges: Bools | None = self.blaming("judges", check.judges, self.logic.judges, kinds)
        self._listed = 0
        self.uses_punctuations: bool = self.logic.uses_punctuations
        self.keeps_limit: bool = self.logic.keeps_limit
        self.uses_disk: bool = self.logic.uses_disk
        self.sheds_by = "limited_step" if self.keeps_limit else "held"
        """The method that says which tuples go for lack of memory."""

    def step(self, released: Released) -> Iterator[Matches]:
        """As the logic's; nothing happens before the first run is asked for."""
        return self._runs("step", self.logic.step, released)

    def live(self) -> int:
        return int(self._asked("live", check.number, self.logic.live))

    def held(self) -> Held:
        held: Held = self._calling("held", self.logic.held)
        self._listed = self.live()
        width, m = self._setting.condition.width, len(self._setting.inputs)
        self.blaming("held", check.held, held, width, m, self._listed)
        return Held._make(map(whole, held))

    def evict(self, victims: Bools) -> None:
        before = self.live()
        self._asked("evict", check.nothing, self.logic.evict, frozen(victims))
        left = before - int(np.count_nonzero(victims))
        if self.live() != left:
            self._refuse("evict", f"left {self.live()} tuples of {before}, must leave {left}")

    @property
    def nbytes(self) -> int:
        """Bytes of what the logic holds; 0 where it does not say."""
        return int(self.blaming("nbytes", check.number, self.logic.nbytes))

    def punctuated_step(self, released: Released, punctuations: Punctuations) -> Iterator[Matches]:
        if not self.uses_punctuations:
            return self.step(released)
        return self._runs("punctuated_step", self.logic.punctuated_step, released, frozen_record(punctuations))

    def held_cells(self) -> tuple[Int8s, Int64s]:
        cells: tuple[Int8s, Int64s] = self._cells(self.logic.held_cells)
        return cells

    def limited_step(self, released: Released, keep: Keep) -> Iterator[Matches]:
        keep.live[:] = -1
        given = frozen_record(keep)._replace(live=keep.live)
        yield from self._runs("limited_step", self.logic.limited_step, released, given)
        if released.ts.size:
            self.blaming("limited_step", check.lived, keep)

    def fit(self, tuples: int, heaps: int) -> None:
        self._asked("fit", check.nothing, self.logic.fit, tuples, heaps)

    def bytes_for(self, tuples: int, heaps: int) -> int:
        return int(self._asked("bytes_for", check.number, self.logic.bytes_for, tuples, heaps))

    def lifetimes(self) -> Int64s:
        left: Int64s = self._array("lifetimes", check.INT64, self._listed, self.logic.lifetimes)
        return left

    def use_disk(self, disk: Disk) -> None:
        self._asked("use_disk", check.nothing, self.logic.use_disk, disk)

    @property
    def directory(self) -> str | None:
        """Where files may be made, or None for the system's temporary directory."""
        where: str | None = self.logic.directory
        return where

    @property
    def spilled(self) -> int:
        """Tuples that have been written to disk so far."""
        return int(self.blaming("spilled", check.number, self.logic.spilled))

    def owes(self) -> bool:
        return bool(self._asked("owes", check.flag, self.logic.owes))

    def finish(self) -> Iterator[Matches]:
        return self._runs("finish", self.logic.finish, None)

    def _runs(
        self, method: str, function: Callable[..., Any], released: Released | None, *given: Any
    ) -> Iterator[Matches]:
        """Yield the runs of a step, each checked."""
        setting = self._setting
        tuples = () if released is None else (frozen_record(released),)
        n = 0 if released is None else released.ts.size
        values = [1] * len(setting.condition.classes)
        if len(setting.inputs) == 1:
            # Finished names the kind of punctuation, with as many values as the widest has.
            values = [max((len(p.cells) for p in setting.patterns), default=0)] * len(setting.patterns)
        checked = check.Runs(n, len(setting.inputs), values, setting.counts_only, self.reorders)
        found = self._calling(method, function, *tuples, *given)
        if not isinstance(found, Iterable):
            self._refuse(method, f"returned {check.kind(found)}, must be an iterable of Matches")
        runs = iter(found)
        while True:
            try:
                run = next(runs)
            except StopIteration:
                break
            except self._through:
                raise
            except Exception as error:
                self._raised(method, error, *tuples)
            self.blaming(method, checked.take, run)
            yield run if run.evicted is None else run._replace(evicted=run.evicted._make(map(whole, run.evicted)))
        self.blaming(method, checked.end)


GUARDS = {"disorder": DisorderGuard, "join": JoinGuard, "shedding": SheddingGuard}


def guarded(strategy: Any, setting: Setting, snapshot: Snapshot | None = None) -> Any:
    """Build the logic of a strategy for one shard, new or from a snapshot, behind its guard."""
    return GUARDS[strategy.stage](strategy, setting, snapshot)
