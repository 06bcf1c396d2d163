"""Finding strategies: entry points of installed distributions, and modules that the user names.

A plugin that cannot be loaded is remembered by name with its fault and skipped; the rest goes on.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any, Final

import pluggy
from pydantic import ValidationError

from slackwater.plugins import hookspecs
from slackwater.plugins.contract import DisorderStrategy, JoinStrategy, SheddingStrategy, Strategy

GROUP: Final = "slackwater"
STAGES: Final[dict[str, type[Strategy]]] = {
    "disorder": DisorderStrategy,
    "join": JoinStrategy,
    "shedding": SheddingStrategy,
}


class PluginError(ValueError):
    """A plugin named by the user cannot be used."""


class OptionError(ValueError):
    """A strategy or one of its options is wrong.

    Attributes:
        option: the option at fault, or None for the strategy itself.
    """

    def __init__(self, message: str, option: str | None = None) -> None:
        super().__init__(message)
        self.option = option


@dataclass(frozen=True)
class Provided:
    """A strategy and where it comes from."""

    strategy: type[Strategy]
    distribution: str
    plugin: str


class StrategyManager:
    """All strategies of this process, by stage and name."""

    def __init__(self) -> None:
        self.broken: dict[str, str] = {}
        """Plugins that could not be used: name to fault."""
        self._strategies: dict[tuple[str, str], Provided] = {}
        for entry in sorted(metadata.entry_points(group=GROUP), key=lambda e: (e.name != "builtin", e.name)):
            dist = entry.dist
            source = f"{dist.name} {dist.version}" if dist else "unknown"
            try:
                self._add(entry.load(), entry.name, source)
            except (Exception, SystemExit) as error:
                self.broken[entry.name] = f"{source}: {type(error).__name__}: {error}"

    def add_module(self, name: str) -> None:
        """Load the plugin in module ``name``, given explicitly by the user."""
        try:
            self._add(importlib.import_module(name), name, f"--plugin {name}")
        except Exception as error:
            raise PluginError(
                f"--plugin {name}: {type(error).__name__}: {error}. Check the module's name and that it is "
                "on PYTHONPATH."
            ) from error

    def strategies(self, stage: str | None = None) -> list[Provided]:
        """All strategies, or those of one stage, in order of stage and registration."""
        return [p for (s, _), p in self._strategies.items() if stage in (None, s)]

    def names(self, stage: str) -> list[str]:
        """Names of a stage's strategies, sorted."""
        return sorted(name for s, name in self._strategies if s == stage)

    def create(self, stage: str, options: Mapping[str, Any]) -> Any:
        """Return the strategy that ``{strategy: name, option: value, …}`` describes, validated."""
        given = dict(options)
        name = given.pop("strategy", None)
        if (stage, str(name)) not in self._strategies:
            fault = "no strategy is named" if name is None else f"no strategy named {name!r}"
            broken = "".join(f" Plugin {p!r} could not be loaded ({why})." for p, why in self.broken.items())
            raise OptionError(
                f"{fault}; installed: {', '.join(self.names(stage))}. Check the spelling, or install the "
                f"plugin that provides it.{broken}"
            )
        strategy = self._strategies[stage, str(name)].strategy
        try:
            return strategy.model_validate(given)
        except ValidationError as error:
            faults = error.errors()
            first = next((f for f in faults if f["type"] == "extra_forbidden"), faults[0])
            option = ".".join(option_path(first["loc"])) or None
            raise OptionError(_option_fault(strategy, option, first), option) from None

    def _add(self, module: Any, plugin: str, source: str) -> None:
        """Register a plugin in a manager of its own, so that a fault in it is its own."""
        manager = pluggy.PluginManager(GROUP)
        manager.add_hookspecs(hookspecs)
        manager.register(module, plugin)
        manager.check_pending()
        found: dict[tuple[str, str], Provided] = {}
        for stage, base in STAGES.items():
            hook = f"slackwater_{stage}_strategies"
            for provided in getattr(manager.hook, hook)():
                if not isinstance(provided, Iterable):
                    raise PluginError(f"{hook} returned {provided!r}, which must be a list of strategies")
                for strategy in provided:
                    name = _checked(strategy, base, stage).name
                    other = self._strategies.get((stage, name)) or found.get((stage, name))
                    if other is not None and other.strategy is not strategy:
                        raise PluginError(
                            f"{stage} strategy {name!r} is already provided by {other.distribution}"
                        )
                    found[stage, name] = other or Provided(strategy, source, plugin)
        self._strategies.update(found)


def fitting(stage: str, fits: Callable[[Any], bool]) -> list[str]:
    """Return the names of the strategies of a stage that fit, with default options; some may be lacking."""
    names = []
    for provided in manager().strategies(stage):
        with suppress(AttributeError):
            if fits(provided.strategy.model_construct()):
                names.append(provided.strategy.name)
    return names


def instead(stage: str, fits: Callable[[Any], bool]) -> str:
    """Return the names of the strategies that fit as ``a, b or c``, for the remedy in an error."""
    *names, last = fitting(stage, fits) or ["another"]
    return f"{', '.join(names)} or {last}" if names else last


def _checked(strategy: Any, base: type[Strategy], stage: str) -> type[Strategy]:
    where = f"slackwater_{stage}_strategies returned {strategy!r}"
    if not (isinstance(strategy, type) and issubclass(strategy, base)):
        raise PluginError(f"{where}, which must be a subclass of {base.__name__}")
    if not any(isinstance(vars(cls).get("name"), str) for cls in strategy.__mro__):
        raise PluginError(f"{where}, which must have a class attribute name: ClassVar[str]")
    return strategy


def option_path(loc: Iterable[str | int]) -> tuple[str, ...]:
    """Return where a fault is, without what pydantic says of the alternatives that it has tried."""
    return tuple(
        str(part)
        for part in loc
        if str(part) not in ("str", "int") and not str(part).startswith(("dict[", "function-"))
    )


def _option_fault(strategy: type[Strategy], option: str | None, error: Any) -> str:
    """One wording for every bad option: must be … got …."""
    known = list(strategy.model_fields)
    if error["type"] == "extra_forbidden" and len(error["loc"]) > 1:
        return f"strategy {strategy.name!r} has no option {option!r}; remove it, or check the spelling."
    if error["type"] == "extra_forbidden":
        has = f"its options are {', '.join(known)}" if known else "it has no options"
        return f"strategy {strategy.name!r} has no option {option!r}; {has}."
    if error["type"] == "missing":
        return f"strategy {strategy.name!r} needs the option {option!r}; add it."
    message = error["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if option is None:
        return f"strategy {strategy.name!r}: {message}."
    got = "" if " got " in message else f", got {error['input']!r}"
    return f"option {option!r} of strategy {strategy.name!r}: {message}{got}."


@cache
def manager() -> StrategyManager:
    """The manager of this process, made on first use."""
    return StrategyManager()
