"""Option types that templates and strategies share."""

import re
from dataclasses import dataclass
from typing import Any, Final, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

_NANOS: Final = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60 * 1_000_000_000,
    "h": 3_600 * 1_000_000_000,
    "d": 86_400 * 1_000_000_000,
}
_PATTERN: Final = r"^\s*(\d+(?:\.\d+)?)\s*(ns|us|ms|s|m|h|d)\s*$"


class Duration(int):
    """A length of time in whole nanoseconds, written ``250ms 5s 1m 2h 1d`` (a day is 24 h).

    A bare number is refused except 0: the unit would be a guess.
    """

    @classmethod
    def parse(cls, value: Any) -> Self:
        """Return the duration written in ``value``; raise ValueError with the fault and the remedy."""
        if isinstance(value, cls):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool) and value == 0:
            return cls(0)
        match = re.match(_PATTERN, value) if isinstance(value, str) else None
        if match is None:
            raise ValueError(f"must be a duration such as 250ms, 5s, 1m, 2h or 1d, got {value!r}")
        return cls(round(float(match[1]) * _NANOS[match[2]]))

    def __str__(self) -> str:
        for unit in ("d", "h", "m", "s", "ms", "us"):
            if self and self % _NANOS[unit] == 0:
                return f"{self // _NANOS[unit]}{unit}"
        return f"{int(self)}ns" if self else "0s"

    def __repr__(self) -> str:
        return f"Duration.parse({str(self)!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {
            "anyOf": [{"type": "string", "pattern": _PATTERN}, {"const": 0}],
            "description": "a duration: 250ms, 5s, 1m, 2h, 1d (a day is 24 h)",
            "examples": ["250ms", "5s", "1m"],
        }


_BYTES: Final = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE_PATTERN: Final = r"^\s*(\d+(?:\.\d+)?)\s*(kB|MB|GB|KiB|MiB|GiB)\s*$"


@dataclass(frozen=True)
class Memory:
    """How much may be held: tuples, written as a whole number, or bytes, written ``64MB`` or ``1.5GiB``.

    Attributes:
        amount: tuples or bytes, at least 1.
        in_bytes: which of the two.
    """

    amount: int
    in_bytes: bool

    @classmethod
    def parse(cls, value: Any) -> Self:
        """Return what is written in ``value``; raise ValueError with the fault and the remedy."""
        if isinstance(value, cls):
            return value
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return cls(value, False)
        match = re.match(_SIZE_PATTERN, value) if isinstance(value, str) else None
        amount = 0 if match is None else round(float(match[1]) * _BYTES[match[2]])
        if amount < 1:
            raise ValueError(f"must be a number of tuples such as 100000, or bytes such as 64MB, got {value!r}")
        return cls(amount, True)

    def tuples(self, tuple_bytes: float) -> int:
        """Return how many tuples of a size fit, at least one."""
        return max(1, int(self.amount / tuple_bytes)) if self.in_bytes else self.amount

    def __str__(self) -> str:
        if not self.in_bytes:
            return str(self.amount)
        unit = next((u for u in ("GiB", "GB", "MiB", "MB", "KiB") if self.amount % _BYTES[u] == 0), "kB")
        return f"{self.amount / _BYTES[unit]:g}{unit}"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {
            "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": _SIZE_PATTERN}],
            "description": "tuples, or bytes: 100000, 64MB, 2GB, 512MiB",
            "examples": [100_000, "64MB"],
        }
