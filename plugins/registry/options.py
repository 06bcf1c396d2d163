"""Option types that templates and strategies share."""

import re
from collections.abc import Mapping
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


class _Written:
    """An option that is written as text: pydantic reads it by ``parse`` and writes it by ``str``."""

    @classmethod
    def parse(cls, value: Any) -> Any:
        raise NotImplementedError

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse, serialization=core_schema.to_string_ser_schema()
        )


class Duration(_Written, int):
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
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {
            "anyOf": [{"type": "string", "pattern": _PATTERN}, {"const": 0}],
            "description": "a duration: 250ms, 5s, 1m, 2h, 1d (a day is 24 h)",
            "examples": ["250ms", "5s", "1m"],
        }


_BYTES: Final = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE_PATTERN: Final = r"^\s*(\d+(?:\.\d+)?)\s*(kB|MB|GB|KiB|MiB|GiB)\s*$"


@dataclass(frozen=True)
class Memory(_Written):
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
        if isinstance(value, str) and re.fullmatch(r"\s*\d+\s*", value):
            value = int(value)
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
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {
            "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": _SIZE_PATTERN}],
            "description": "tuples, or bytes: 100000, 64MB, 2GB, 512MiB",
            "examples": [100_000, "64MB"],
        }


_LEAST_BYTES: Final = 10**6


@dataclass(frozen=True)
class MemoryLimit(_Written):
    """How much may be held at which time: a ``Memory``, or ``{0s: 100000, 10m: 50000}``.

    Attributes:
        steps: from which stream time on, counted from the first row, how much may be held; the first is at 0s.
    """

    steps: tuple[tuple[Duration, Memory], ...]

    @classmethod
    def parse(cls, value: Any) -> Self:
        """Return what is written in ``value``; raise ValueError with the fault and the remedy."""
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            return cls(((Duration(0), _enough(Memory.parse(value))),))
        steps = []
        for since, memory in value.items():
            try:
                steps.append((Duration.parse(since), _enough(Memory.parse(memory))))
            except ValueError as error:
                raise ValueError(f"at {since!r} {error}") from None
        steps.sort(key=lambda step: step[0])
        times = [since for since, _ in steps]
        if not times or times[0] != 0:
            raise ValueError(
                f"says nothing of the beginning; add 0s, as in {{0s: 9000, 10m: 500}}, got {value!r}"
            )
        if len(set(times)) < len(times):
            raise ValueError(f"names the same time twice; leave one out, got {value!r}")
        return cls(tuple(steps))

    def at(self, elapsed: int) -> Memory:
        """Return what may be held ``elapsed`` ns after the first row."""
        return [memory for since, memory in self.steps if since <= max(0, elapsed)][-1]

    def __str__(self) -> str:
        if len(self.steps) == 1:
            return str(self.steps[0][1])
        return f"{{{', '.join(f'{since}: {memory}' for since, memory in self.steps)}}}"

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        memory = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": _SIZE_PATTERN}]}
        return {
            "anyOf": [*memory["anyOf"], {"type": "object", "additionalProperties": memory}],
            "description": "tuples, or bytes: 100000, 64MB; or how much from which stream time on",
            "examples": [100_000, "64MB", {"0s": 100_000, "10m": 50_000}],
        }


def _enough(memory: Memory) -> Memory:
    if memory.in_bytes and memory.amount < _LEAST_BYTES:
        raise ValueError(f"must be at least 1MB where it is in bytes, got {str(memory)!r}")
    return memory


_ROWS_PATTERN: Final = r"^\s*([1-9]\d*)\s*rows?\s*$"


class Rows(_Written, int):
    """A number of rows, written ``400 rows``."""

    @classmethod
    def parse(cls, value: Any) -> Self:
        """Return what is written in ``value``; raise ValueError with the fault and the remedy."""
        if isinstance(value, cls):
            return value
        match = re.match(_ROWS_PATTERN, value) if isinstance(value, str) else None
        if match is None:
            raise ValueError(f"must be a number of rows such as 400 rows, got {value!r}")
        return cls(match[1])

    @staticmethod
    def meant(value: Any) -> bool:
        """Return whether ``value`` is to be read as a number of rows, right or wrong."""
        return isinstance(value, Rows) or (isinstance(value, str) and "row" in value)

    def __str__(self) -> str:
        return f"{int(self)} rows"

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "pattern": _ROWS_PATTERN, "description": "a number of rows: 400 rows"}
