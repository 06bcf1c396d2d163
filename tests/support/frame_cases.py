"""Two streams as files for tests on DataFrames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql.pandas.types import from_arrow_schema as to_spark
from spark_cases import NAMES, stream


def streams(spark: Any, paths: list[Path], pattern: str = "*.parquet") -> dict[str, Any]:
    return {
        name: spark.readStream.schema(to_spark(stream(0).schema))
        .option("maxFilesPerTrigger", 1)
        .option("pathGlobFilter", pattern)
        .parquet(str(path))
        for name, path in zip(NAMES, paths, strict=False)
    }
