"""Rows are counted where they are read; a run that loses one on the way fails, whatever its operators say."""

from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.reader import read_template_text
from slackwater.transforms.errors import AccountError, SlackwaterError
from slackwater.transforms.operators.join import Operator

REPORT = "rows were lost or came twice, so no output is published: please report it"
TEMPLATE = """
pipeline:
  transforms:
    - {{type: ReadFromParquet, name: A, config: {{path: "{folder}/a.parquet"}}}}
    - {{type: ReadFromParquet, name: B, config: {{path: "{folder}/b.parquet"}}}}
    - {{type: Filter, name: Some, input: A, config: {{keep: "v < 30"}}}}
    - {{type: MapToFields, name: Mapped, input: Some, config: {{fields: {{ts: ts, k: k}}}}}}
    - type: SlidingWindowJoin
      name: joined
      input: {{a: Mapped, b: B}}
      config: {{time: ts, window: 20ms, where: a.k = b.k, disorder: {{strategy: none}}, shards: {shards}}}
    - {{type: WriteToParquet, name: Results, input: joined, config: {{path: "{folder}/out/joined.parquet"}}}}
    - {{type: WriteToJson, name: Late, input: joined.late, config: {{path: "{folder}/out/late.jsonl"}}}}
"""


@pytest.fixture
def template(tmp_path):
    rng = np.random.default_rng(1)
    for name in "ab":
        ts = np.arange(100) * 2 - rng.integers(0, 30, 100) * (rng.random(100) < 0.2)
        table = pa.table({"ts": ts, "k": rng.integers(0, 3, 100), "v": np.arange(100) % 50})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    return lambda shards=1: read_template_text("t.yaml", TEMPLATE.format(folder=tmp_path, shards=shards))


def run_beam(pipeline):
    from slackwater.pipelines.runners.beam import runner as run_beam

    return run_beam.run(pipeline)


RUNNERS = [pytest.param(local.run, id="local"), pytest.param(run_beam, id="beam", marks=pytest.mark.beam)]


@pytest.mark.parametrize("run", RUNNERS)
def test_the_summary_says_what_was_read_and_filtered(template, run):
    summary = run(template(shards=2))
    a, b = summary["accounting"]["a"], summary["accounting"]["b"]
    assert (a["source"], a["filtered"], a["input"], a["balanced"]) == (100, 40, 60, True)
    assert (b["source"], b["filtered"], b["input"], b["balanced"]) == (100, 0, 100, True)


def fails(tmp_path, run, pipeline, text):
    with pytest.raises(SlackwaterError, match=text) as failed:
        run(pipeline)
    assert REPORT in str(failed.value)
    assert not list(tmp_path.glob("out/*")), "nothing is published"


def without_last(chunk):
    """The rows of a chunk but for the last that arrived."""
    which = int(chunk.input[-1])
    batches = [b.slice(0, b.num_rows - 1) if i == which else b for i, b in enumerate(chunk.batches)]
    return chunk._replace(input=chunk.input[:-1], arrival=chunk.arrival[:-1], batches=batches)


@pytest.mark.parametrize("run", RUNNERS)
def test_a_row_that_an_operator_never_sees_fails_the_run(template, tmp_path, monkeypatch, run):
    """Its own account is balanced: it does not know of the row."""
    push = Operator.push
    monkeypatch.setattr(Operator, "push", lambda self, chunk: push(self, without_last(chunk)))
    fails(
        tmp_path, run, template(), r"of input '[ab]', .*(60|100) rows.* \d+ received|given \d+ rows, received \d+"
    )


@pytest.mark.parametrize("run", RUNNERS)
def test_late_rows_that_vanish_fail_the_run(template, tmp_path, monkeypatch, run):
    push = Operator.push
    monkeypatch.setattr(Operator, "push", lambda self, chunk: push(self, chunk)._replace(late=[]))
    fails(tmp_path, run, template(), r"joined.late: \d+ rows are accounted for, and 0 came out")


@pytest.mark.parametrize("run", RUNNERS)
def test_rows_lost_before_the_operator_fail_the_run(template, tmp_path, monkeypatch, run):
    """MapToFields that gives a row less than it gets, once."""
    from slackwater.pipelines.assembly import mapping as expressions
    from slackwater.pipelines.template.graph import MapToFields

    apply, calls = expressions.apply, count()

    def losing(config, batch):
        rows = apply(config, batch)
        return rows.slice(1) if isinstance(config, MapToFields) and next(calls) == 0 else rows

    for runner in ("local", "beam"):
        monkeypatch.setattr(f"slackwater.pipelines.runners.{runner}.runner.apply", losing)
    text = "joined: of input 'a', 100 rows were read, 40 filtered out, 59 received and 59 accounted for"
    fails(tmp_path, run, template(), text)


def test_rows_lost_on_their_way_to_a_file_fail_the_run(template, tmp_path, monkeypatch):
    write = local.Sink.write
    monkeypatch.setattr(local.Sink, "write", lambda self, batch: write(self, batch.slice(1)))
    fails(
        tmp_path,
        local.run,
        template(),
        r"(Results|Late): \d+ rows? came from 'joined(.late)?', and \d+ were written",
    )


@pytest.mark.spark
def test_spark_counts_what_its_tasks_read_and_what_its_shards_gave(spark, template, tmp_path, monkeypatch):
    from slackwater.pipelines.runners.spark import runner as run_spark
    from slackwater.pipelines.runners.spark.source import Job

    def run(pipeline):
        return run_spark.run(pipeline, session=spark)

    with monkeypatch.context() as patch:
        pieces = Job.pieces
        patch.setattr(Job, "pieces", lambda self: [[t for t in ts if t[0] != 1] for ts in pieces(self)])
        fails(tmp_path, run, template(), r"100 rows are in '.*/b.parquet', and 0 were read")
    with monkeypatch.context() as patch:
        in_order = run_spark._in_order
        patch.setattr(run_spark, "_in_order", lambda rows: (r for r in in_order(rows) if r[1] != "late"))
        fails(tmp_path, run, template(), r"joined.late: \d+ rows are accounted for, and 0 came out")
    summary = run(template(shards=2))
    a = summary["accounting"]["a"]
    assert (a["source"], a["filtered"], a["input"], a["balanced"]) == (100, 40, 60, True)


def test_a_shard_on_spark_fails_when_it_loses_a_row(monkeypatch):
    pytest.importorskip("pyspark")
    from spark_cases import bound, star, stream

    from slackwater.pipelines.runners.spark.source import Feed, plan_job
    from slackwater.pipelines.template.graph import Create
    from slackwater.transforms.spark.blobs import Packed
    from slackwater.transforms.spark.shard import Given, Shard

    tables = [stream(0, 50), stream(1, 50)]
    plan = bound(tables, where=star(2))
    feeds = [Feed(Create(tuple(table.to_pylist())), table.schema) for table in tables]
    job = plan_job(feeds, plan, [0], 1000)
    rows = [row for task in job.pieces()[0] for batch in job.read(*task) for row in batch.to_pylist()]
    given = Given([Packed(row["input"], row["place"], row["blob"]) for row in rows], 0)
    shard = Shard(plan)
    list(shard.take(given))
    assert shard.read.tolist() == [[50, 50], [50, 50]]
    push = Operator.push
    monkeypatch.setattr(Operator, "push", lambda self, chunk: push(self, without_last(chunk)))
    with pytest.raises(SlackwaterError, match=r"of input '[ab]', a shard was given 50 rows, received 49 and"):
        list(Shard(plan).take(given))


def test_a_live_run_on_spark_fails_when_a_row_is_lost_on_its_way_to_a_shard():
    """Tasks tell every shard how many rows they have read; state of an earlier version has no such count."""
    pytest.importorskip("pyspark")
    from spark_cases import bound, star, stream

    from slackwater.pipelines.runners.spark.live import settle_shards
    from slackwater.transforms.spark.blobs import Packed
    from slackwater.transforms.spark.shard import Given, Shard
    from slackwater.transforms.spark.state import account_of, read_account
    from slackwater.transforms.spark.tasks import PARTITION, Says, packer

    tables = [stream(0, 50), stream(1, 40)]
    plan = bound(tables, where=star(2), shards=2)

    def packed(shard):
        """What comes to a shard of two micro-batches of the same rows."""
        rows = []
        for i, table in enumerate(tables):
            numbered = table.append_column(PARTITION, pa.array(np.zeros(len(table), np.int64)))
            batches = numbered.to_batches(max_chunksize=20)
            said = packer(plan, i, [0, 1], Says(beats=True, samples=False, calls=True))(batches)
            rows += [row for batch in said for row in batch.to_pylist() if row["shard"] == shard]
        return [Packed(row["input"], row["place"], row["blob"]) for row in rows]

    def settled(given, snapshots=(None, None)):
        accounts = {}
        for number, (rows, snapshot) in enumerate(zip(given, snapshots, strict=True)):
            shard = Shard(plan, snapshot, number)
            list(shard.take(Given(rows, 0)))
            before = shard.accounting.mark()
            accounts[number] = read_account(plan, account_of(shard, before).blob)
        settle_shards("joined", plan, accounts)
        return accounts

    accounts = settled([packed(0), packed(1)])
    assert [account.read.tolist() for account in accounts.values()] == [[[50, 50], [40, 40]]] * 2
    assert not any(account.uncounted.any() for account in accounts.values())
    lost = [row for row in packed(1) if row.input != 1]
    with pytest.raises(
        AccountError, match=r"joined: of input 'b', 40 rows were read, \d+ received and \d+ accounted"
    ):
        settled([packed(0), lost])
    with pytest.raises(AccountError, match="joined: shards were told of different numbers of rows"):
        settled([packed(0), [row for row in packed(1) if row.input >= 0]])
    settle_shards("joined", plan, {0: accounts[0]})

    earlier = []
    for number in range(2):
        shard = Shard(plan, number=number)
        list(shard.take(Given([row for row in packed(number) if row.input >= 0], 0)))
        assert shard.uncounted.sum() == shard.accounting.received.sum() > 0
        snapshot = shard.snapshot()
        del snapshot["uncounted"]
        earlier.append(snapshot)
    settled([packed(0), packed(1)], earlier)
    with pytest.raises(AccountError, match=r"joined: of input 'b', 80 rows were read, \d+ received"):
        settled([packed(0), lost], earlier)


def test_the_error_survives_a_journey_between_processes():
    import pickle

    error = AccountError.of("joined: 3 rows")
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == f"joined: 3 rows; {REPORT}"
