"""Pipeline options of Beam, from the command line to a runner."""

from __future__ import annotations

import argparse
import difflib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners import create_runner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.spark_runner import SparkRunner
from apache_beam.utils.subprocess_server import JavaJarServer

from slackwater.pipelines.runners.beam.job_server import java, job_server_jar
from slackwater.transforms.beam.runners import STREAMING_ON_SPARK, is_spark
from slackwater.transforms.errors import ConfigError

SPARK_MASTER: Final = "local[2]"
STATE_CACHE_MB: Final = 256
_WITHOUT_SERVER: Final = ("fnapirunner", "directrunner", "bundlebaseddirectrunner", "switchingdirectrunner")
"""Runners in this process: they know no options but those of the SDK."""


class BeamRunner(NamedTuple):
    """A runner and what to give it."""

    runner: Any
    options: PipelineOptions
    warnings: list[str]


def beam_runner(given: Mapping[str, str], spark: bool = False) -> BeamRunner:
    """Return the runner that options name, FnApiRunner if they name none.

    Args:
        given: pipeline options by name.
        spark: run on Spark through Beam's job server, with the server's own options beside the given ones.

    Raises:
        ConfigError: An option is not known, has a wrong value, or asks for what the runner cannot do.
    """
    runner_name = given.get("runner", "SparkRunner" if spark else "FnApiRunner")
    in_process = runner_name.rpartition(".")[2].lower() in _WITHOUT_SERVER
    options = PipelineOptions(flags=_flags({**given, "runner": runner_name}, in_process))
    if spark and not is_spark(options):
        raise ConfigError(f"{runner_name} is not beam-spark; use --runner beam", "--beam-option runner")
    if is_spark(options):
        if options.view_as(StandardOptions).streaming:
            raise ConfigError(STREAMING_ON_SPARK, "--beam-option streaming")
        return spark_runner(given)
    try:
        runner = FnApiRunner() if runner_name == "FnApiRunner" else create_runner(runner_name)
    except (ImportError, ValueError, AttributeError) as error:
        raise ConfigError(f"no runner named {runner_name!r}: {error}", "--beam-option runner") from None
    return BeamRunner(runner, options, [])


def spark_runner(given: Mapping[str, str] | None = None) -> BeamRunner:
    """Return the Spark runner with its job server; there is a warning if that is of another version."""
    logging.getLogger(JavaJarServer.__module__).setLevel(logging.ERROR)
    given = {**(given or {}), "runner": "SparkRunner"}
    warnings = []
    defaults = {
        "spark_master_url": SPARK_MASTER,
        "environment_type": "LOOPBACK",
        "max_cache_memory_usage_mb": str(STATE_CACHE_MB),
    }
    if not given.keys() & {"spark_job_server_jar", "job_endpoint"}:
        defaults["job_server_java_launcher"] = java()
        jar = job_server_jar(beam.__version__, Path(JavaJarServer.JAR_CACHE))
        defaults["spark_job_server_jar"] = str(jar)
        if beam.__version__ not in jar.name:
            warnings.append(
                f"the Spark job server is {jar.name}, of another version than Beam {beam.__version__}"
            )
    options = PipelineOptions(flags=_flags({**defaults, **given}, False))
    return BeamRunner(SparkRunner(), options, warnings)


def _flags(given: Mapping[str, str], all_known: bool) -> list[str]:
    """Return options as Beam reads them; raise ConfigError for those that it does not know, where it knows all.

    A job server has options of its own, which only it can tell.
    """
    parser = _parser()
    flags = []
    for name, value in given.items():
        flag = f"--{name}"
        action = parser._option_string_actions.get(flag)
        if action is None and all_known:
            names = [known.removeprefix("--") for known in parser._option_string_actions]
            close = difflib.get_close_matches(name, names, 1)
            remedy = f"did you mean {close[0]}?" if close else "check the spelling"
            raise ConfigError(f"Beam knows no such option; {remedy}", f"--beam-option {name}")
        if action is not None and action.nargs == 0:
            if value.lower() not in ("true", "false"):
                raise ConfigError(f"must be true or false, got {value!r}", f"--beam-option {name}")
            flags += [flag] if value.lower() == "true" else []
            continue
        flags.append(f"{flag}={value}")
        _check(parser, name, flags[-1])
    return flags


def _check(parser: argparse.ArgumentParser, name: str, flag: str) -> None:
    def refuse(message: str) -> None:
        raise ConfigError(message.partition(": ")[2] or message, f"--beam-option {name}")

    parser.error = refuse  # type: ignore[method-assign, assignment]
    parser.parse_known_args([flag])


def _parser() -> argparse.ArgumentParser:
    """Return the parser that Beam reads its options with."""
    found: list[argparse.ArgumentParser] = []
    PipelineOptions(flags=[]).get_all_options(add_extra_args_fn=found.append)
    return found[0]
