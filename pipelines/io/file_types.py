"""The types that the settings ``schema`` and ``dtype`` of readers know."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

TYPES: Final = {
    "integer": pa.int64(),
    "number": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us"),
    "date": pa.date32(),
}
"""Names of types in the setting ``schema``: those of JSON Schema, and two of time."""
DTYPES: Final = {
    "str": "string",
    "object": "string",
    "string": "string",
    "int64": "integer",
    "Int64": "integer",
    "int": "integer",
    "float64": "number",
    "Float64": "number",
    "float": "number",
    "bool": "boolean",
    "boolean": "boolean",
}
"""The names that Beam's readers, which are pandas', have for them in ``dtype``."""
WORDS: Final = {value: name for name, value in TYPES.items()}
