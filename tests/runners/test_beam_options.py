"""Options of Beam on the command line: passed on, or refused with a reason."""

import json

import pytest
from apache_beam.options.pipeline_options import DirectOptions, PortableOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from cli_calls import call, write_template

from slackwater.pipelines.runners.beam.options import beam_runner
from slackwater.transforms.errors import ConfigError

pytestmark = pytest.mark.beam


def test_options_reach_the_runner():
    runner, options, warnings = beam_runner({"direct_num_workers": "2"})
    assert isinstance(runner, FnApiRunner) and warnings == []
    assert options.view_as(DirectOptions).direct_num_workers == 2
    runner, options, _ = beam_runner(
        {"runner": "PortableRunner", "job_endpoint": "localhost:8099", "servers_own": "x", "streaming": "true"}
    )
    assert type(runner).__name__ == "PortableRunner"
    assert options.view_as(PortableOptions).job_endpoint == "localhost:8099"
    assert options.get_all_options(retain_unknown_options=True)["servers_own"] == "x"
    _, options, _ = beam_runner(
        {"runner": "spark", "spark_master_url": "local[7]", "job_endpoint": "localhost:8099"}
    )
    assert options.get_all_options()["spark_master_url"] == "local[7]"


@pytest.mark.parametrize(
    ("spark", "options", "message"),
    [
        (
            False,
            {"direct_num_wrkers": "2"},
            "--beam-option direct_num_wrkers: .* did you mean direct_num_w",
        ),
        (False, {"zzz": "2"}, "--beam-option zzz: Beam knows no such option; check the spelling"),
        (False, {"direct_num_workers": "two"}, "--beam-option direct_num_workers: invalid int value: 'two'"),
        (False, {"streaming": "perhaps"}, "--beam-option streaming: must be true or false, got 'perhaps'"),
        (False, {"runner": "NoRunner"}, "--beam-option runner: no runner named 'NoRunner': .*Valid values are"),
        (
            True,
            {"runner": "FlinkRunner"},
            "--beam-option runner: FlinkRunner is not beam-spark; use",
        ),
        (True, {"streaming": "true"}, "--beam-option streaming: Beam's Spark runner keeps no state by key"),
        (False, {"runner": "SparkRunner", "streaming": "true"}, "--beam-option streaming: .*with --runner spark"),
    ],
)
def test_what_cannot_be_done_is_refused(spark, options, message):
    with pytest.raises(ConfigError, match=message):
        beam_runner(options, spark)


def test_the_command_passes_options_on(tmp_path):
    template = str(write_template(tmp_path))
    summary = tmp_path / "summary.json"
    common = ["run", template, "--set", "slack=1s"]
    options = ["--runner", "beam", "--beam-option", "runner=BundleBasedDirectRunner"]
    done = call(*common, *options, "--summary", str(summary))
    assert done.exit_code == 0, done.output
    assert json.loads(summary.read_text())["results"] == 3
    for wrong, message in (
        (["--runner", "beam", "--beam-option", "direct"], "--beam-option direct: must be NAME=VALUE"),
        (["--beam-option", "streaming=true"], "--beam-option: is for --runner beam or beam-spark, not local"),
        (["--runner", "beam", "--beam-option", "wrkers=1"], "--beam-option wrkers: Beam knows no such option"),
        (["--runner", "beam-spark", "--beam-option", "streaming=true"], "with --runner spark"),
    ):
        done = call(*common, *wrong)
        assert done.exit_code == 2 and message in done.output, done.output


def test_the_file_for_beam_yaml_is_named():
    done = call("providers")
    assert done.exit_code == 0 and done.output.strip().endswith("templates/providers.yaml")
