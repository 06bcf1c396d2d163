"""Runs whose processes are killed at random moments, against runs that are left alone: nothing may differ."""

from slackwater.pipelines.bench.benchmark import Benchmark, option, rows

BENCHMARKS = (
    Benchmark(
        "driver_kills",
        "a join on Spark whose driver is killed at random, against one that is left alone",
        takes="15 minutes",
        function="kills.driver:run",
        rows=rows(100_000, "rows of each input"),
        options=(
            option("cases", nargs="*", metavar="CASE", help="disorder strategies; by default all"),
            option("--kills", default=20, help="kills of each case"),
            option("--files", default=40, help="files of each input: micro-batches"),
        ),
        quick={"rows": 1_500, "kills": 1, "files": 4, "cases": ["fixed"]},
        needs=("pyspark",),
    ),
    Benchmark(
        "worker_kills",
        "a join on a Spark cluster whose workers are killed at random, against the local runner",
        takes="3 minutes",
        function="kills.worker:run",
        rows=rows(60_000, "rows of each input"),
        options=(
            option("--kills", default=5, help="kills"),
            option("--batch-rows", default=2_000, help="rows of each input in a micro-batch"),
        ),
        quick={"rows": 6_000, "kills": 1},
        needs=("pyspark",),
    ),
    Benchmark(
        "kafka_kills",
        "a join from Kafka to Kafka whose driver is killed in mid-batch, against one that is left alone",
        takes="15 minutes",
        function="kills.kafka:run",
        rows=rows(40_000, "messages of each topic", "--messages"),
        options=(
            option("--kills", default=20, help="kills in mid-batch"),
            option("--partitions", default=3, help="partitions of each topic"),
            option("--batch-rows", default=1000, help="messages of each topic in a micro-batch"),
            option("--recall", type=float, default=0.0, help="recall to ask for; 0 for a fixed slack"),
        ),
        quick={"rows": 6_000, "kills": 1},
        needs=("pyspark", "confluent_kafka"),
    ),
)
