"""What the command line makes of errors: one line on standard error, and an exit code."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, ParamSpec

import typer

from slackwater.transforms.errors import ConfigError, SlackwaterError, unexpected

P = ParamSpec("P")
DONE, FAILED, BAD_USAGE = 0, 1, 2
EXTRAS: Final = {"apache_beam": "beam", "pyspark": "spark", "pandas": "spark"}
"""Extra that provides a package that a runner may miss."""


class UsageError(SlackwaterError):
    """The command was called wrongly, or something it needs is not installed."""


def show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Show a warning of Python's as one line, without the place in the code that Python would show."""
    typer.echo(f"warning: {' '.join(str(message).split())}", err=True)


def reporting(command: Callable[P, None]) -> Callable[P, None]:
    """Turn errors of a command into one line on standard error and an exit code."""

    @functools.wraps(command)
    def reported(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except BaseException as error:
            if kwargs.get("debug") or isinstance(error, SystemExit):
                raise
            message, code = _explain(error)
            typer.echo(f"error: {message}", err=True)
            raise typer.Exit(code) from None

    return reported


def _explain(error: BaseException) -> tuple[str, int]:
    """One line for an error, and the exit code that it means."""
    from slackwater.pipelines.template.text import TemplateError
    from slackwater.plugins.registry.manager import OptionError, PluginError

    if isinstance(error, KeyboardInterrupt):
        return "interrupted", FAILED
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] in EXTRAS:
        extra = EXTRAS[(error.name or "").partition(".")[0]]
        return (
            f"this runner needs {error.name}; install it with: pip install 'slackwater[{extra}]'",
            BAD_USAGE,
        )
    message = " ".join(str(error).split())
    if isinstance(error, UsageError | TemplateError | ConfigError | PluginError | OptionError):
        return message, BAD_USAGE
    if isinstance(error, SlackwaterError):
        return message, FAILED
    if isinstance(error, MemoryError):
        return (
            f"there is not enough memory ({message or 'no more is known'}); give it more, or set a limit",
            FAILED,
        )
    if isinstance(error, OSError) and error.strerror:
        of = "" if error.filename is None else f" {str(error.filename)!r}"
        return (
            f"the system refuses{of}: {error.strerror}; mend that, or run again with --debug to see where",
            FAILED,
        )
    return f"{unexpected(error)}, with what --debug shows", FAILED
