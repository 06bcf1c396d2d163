"""Arrays on their way to a strategy and back: read-only going out, whole coming in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

Record = TypeVar("Record", bound=tuple[Any, ...])


def frozen(array: Any) -> Any:
    """Return a view that cannot be written to; what is no array is returned as it is."""
    if not isinstance(array, np.ndarray):
        return array
    view = array.view()
    view.setflags(write=False)
    return view


def frozen_record(record: Record) -> Record:
    """Return a named tuple whose arrays cannot be written to."""
    made: Record = record._make(map(frozen, record))  # type: ignore[attr-defined]
    return made


def opened(array: Any) -> Any:
    """Return an array that was handed out read-only as kernels take it.

    Numba compiles a kernel once for arrays that can be written to and once for those that cannot. A strategy
    whose kernels are compiled for the former passes its arrays through here, and its kernels leave them alone:
    the conformance suite looks.
    """
    if not isinstance(array, np.ndarray) or array.flags.writeable:
        return array
    view = array.view()
    try:
        view.setflags(write=True)
    except ValueError:
        return array
    return view


def opened_all(arrays: Iterable[Any]) -> tuple[Any, ...]:
    """Return several arrays as kernels take them."""
    return tuple(map(opened, arrays))


def whole(array: Any) -> Any:
    """Return an array as kernels take it: in one piece, and not one that was handed out read-only."""
    flags = array.flags
    return array if flags.c_contiguous and flags.writeable else np.array(array, order="C")
