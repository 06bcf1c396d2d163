"""Types of columns that operators and files can take, and those that they cannot."""

from __future__ import annotations

import pyarrow as pa


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with every view, also within lists and structs, as text or bytes; values stay the same."""
    return pa.schema([field.with_type(plain_type(field.type)) for field in schema])


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Return a type without views."""
    types = pa.types
    if types.is_string_view(type_) or types.is_binary_view(type_):
        return pa.large_string() if types.is_string_view(type_) else pa.large_binary()
    if types.is_struct(type_):
        return pa.struct([field.with_type(plain_type(field.type)) for field in type_])
    if types.is_list(type_) or types.is_large_list(type_):
        inner = type_.value_field.with_type(plain_type(type_.value_type))
        return pa.list_(inner) if types.is_list(type_) else pa.large_list(inner)
    return type_


def refused_by_csv(schema: pa.Schema) -> pa.Field | None:
    """Return the first column that a CSV file cannot hold, if there is one."""
    return next((field for field in schema if pa.types.is_nested(field.type)), None)
