"""What a benchmark declares: its name, its purpose, how long it takes, its function and its options."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slackwater.transforms.errors import SlackwaterError

if TYPE_CHECKING:
    from slackwater.pipelines.bench.report import Report

MARKDOWN = (".md", ".txt")
"""What ``--out`` ends with where it names a file; all else is a folder."""


@dataclass(frozen=True)
class Option:
    """An option of a benchmark: flags and settings of ``ArgumentParser.add_argument``."""

    flags: tuple[str, ...]
    settings: Mapping[str, Any]


def option(*flags: str, **settings: Any) -> Option:
    """Declare an option; a whole-number default asks for whole numbers."""
    if isinstance(settings.get("default"), int) and "action" not in settings:
        settings.setdefault("type", int)
    return Option(flags, settings)


def rows(default: int | None, counted: str, *aliases: str) -> Option:
    """Declare ``--rows``; ``counted`` says what they are the rows of."""
    return Option(("--rows", *aliases), {"default": default, "type": count, "help": counted, "metavar": "N"})


@dataclass(frozen=True)
class Benchmark:
    """A benchmark. Declaring one imports nothing of what it runs, so that listing all is quick."""

    name: str
    purpose: str
    takes: str
    """About how long, on two idle cores with kernels compiled."""
    function: str
    """``module:function`` below this package; it is given the parsed options and a ``Report``."""
    rows: Option
    quick: Mapping[str, Any] = field(default_factory=dict)
    """Defaults that ``--quick`` replaces by these; a function may look at ``options.quick`` for more."""
    seed: int | None = 1
    options: Sequence[Option] = ()
    needs: Sequence[str] = ()
    """Modules that are not installed with the package itself."""

    def parser(self) -> argparse.ArgumentParser:
        """Return a parser of the common options and of its own."""
        parser = argparse.ArgumentParser(
            prog=f"slackwater bench {self.name}",
            description=f"Measures {self.purpose}. It takes about {self.takes}.",
            formatter_class=_Help,
        )
        parser.add_argument("--seed", type=int, default=self.seed, help="seed of all that is random")
        parser.add_argument("--out", type=_out, metavar="DIR", help="folder for tables (CSV, Markdown) and plots "
                            "(HTML), or a file that ends with .md for the tables alone")  # fmt: skip
        parser.add_argument("--quick", action="store_true", help="a small run that tries the benchmark itself")
        for each in (self.rows, *self.options):
            parser.add_argument(*each.flags, **each.settings)
        return parser

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse a command line. What is given goes before what ``--quick`` asks for."""
        parser = self.parser()
        if parser.parse_args(arguments).quick:
            parser.set_defaults(**self.quick)
        return parser.parse_args(arguments)

    def load(self) -> Callable[[argparse.Namespace, Report], None]:
        """Import its function; raise if a package is missing."""
        for module in self.needs:
            if find_spec(module) is None:
                raise SlackwaterError(
                    f"bench {self.name} needs the package {module}, which is not installed; "
                    f"install it with: pip install {PACKAGES.get(module, module)}"
                )
        module, _, name = self.function.partition(":")
        found: Callable[[argparse.Namespace, Report], None] = getattr(
            importlib.import_module(f"slackwater.pipelines.bench.{module}"), name
        )
        return found


PACKAGES = {
    "apache_beam": "'slackwater[beam]'",
    "pyspark": "'slackwater[spark]'",
    "ortools": "'slackwater[offline]'",
    "confluent_kafka": "confluent-kafka",
}
"""What provides a module, where its name does not say it."""


def count(text: str) -> int:
    """Parse a whole number of at least 1."""
    try:
        found = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}.") from None
    if found < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}.")
    return found


def words(text: str) -> tuple[str, ...]:
    """Parse names separated by commas."""
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def known_words(text: str, known: Sequence[str], kind: str, heading: str) -> tuple[str, ...]:
    """Parse names separated by commas, each of which must be known."""
    found = words(text)
    for name in found:
        if name not in known:
            raise argparse.ArgumentTypeError(
                f"no {kind} named {name!r}; {heading}: {', '.join(known)}. Check the spelling."
            )
    return found


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Tells of defaults that say something."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, False) else super()._get_help_string(action)


def _out(text: str) -> Path:
    out = Path(text)
    if out.suffix in MARKDOWN:
        if not out.absolute().parent.is_dir():
            raise argparse.ArgumentTypeError(f"there is no folder {out.parent}; make it, or name another file")
    elif out.exists() and not out.is_dir():
        raise argparse.ArgumentTypeError(f"{out} is not a folder. Name a folder, or one to be made.")
    return out
