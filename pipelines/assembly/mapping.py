"""Filter and MapToFields on Arrow batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from slackwater.pipelines.template.graph import Filter, MapToFields
from slackwater.transforms.arrival.bad_rows import HIDDEN, bad_ones
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.expressions.evaluation import WORDS, check, evaluate, kind_of_value, truth
from slackwater.transforms.expressions.tree import Expr, ExpressionError

__all__ = ["applied_schema", "apply", "check", "evaluate"]


def apply(config: Filter | MapToFields, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows that pass, or the rows with the columns computed.

    The hidden columns, where there are any, are passed on unchanged; so are rows that could not be read.
    """
    if isinstance(config, Filter):
        keep, bad = truth(evaluate(config.keep, batch)), bad_ones(batch)
        return batch.filter(keep if bad is None else pa.array(np.asarray(keep.fill_null(False)) | bad))
    kept = [
        (field, batch.column(i))
        for i, field in enumerate(batch.schema)
        if field.name in HIDDEN or (config.append and field.name not in config.drop)
    ]
    for name, expr in config.fields.items():
        values = evaluate(expr, batch)
        kept.append((pa.field(name, values.type), values))
    fields, columns = zip(*kept, strict=True)
    return pa.RecordBatch.from_arrays(list(columns), schema=pa.schema(fields))


def applied_schema(config: Filter | MapToFields, schema: pa.Schema) -> pa.Schema:
    """Return the columns that ``apply`` gives; raise ConfigError with the path of the setting at fault."""
    if isinstance(config, Filter):
        kind = kind_of_value(_checked(config.keep, schema, "keep"))
        if kind not in ("bool", "null"):
            raise ConfigError(f"must be true or false for each row, but is {WORDS[kind]}; compare it", "keep")
        return schema
    for name in config.drop:
        if name not in schema.names:
            raise ConfigError(f"there is no column {name!r}; there are {', '.join(schema.names)}", "drop")
    fields = [field for field in schema if config.append and field.name not in config.drop]
    for name in config.fields:
        if name in HIDDEN:
            raise ConfigError("is the name of a hidden column; choose another", "fields", name)
        if any(field.name == name for field in fields):
            raise ConfigError(
                "there is a column of this name already; rename it, or drop the old one", "fields", name
            )
    fields += [pa.field(n, _checked(expr, schema, "fields", n)) for n, expr in config.fields.items()]
    if not fields:
        raise ConfigError("leaves no column; drop fewer", "drop")
    return pa.schema(fields)


def _checked(expr: Expr, schema: pa.Schema, *path: str) -> pa.DataType:
    try:
        return check(expr, schema)
    except ExpressionError as error:
        raise ConfigError(str(error), *path) from None
