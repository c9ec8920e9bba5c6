"""From what a caller passes to arrays of the model's data types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rten_aot.runtime.errors import InputError

Array: TypeAlias = npt.NDArray[Any]


def is_plain(array: Array) -> bool:
    """Whether the elements lie one after another, each at a multiple of its size."""
    flags = array.flags
    return flags.c_contiguous and flags.aligned


def convert(name: str, dtype: np.dtype[Any], value: object) -> Array:
    """``value`` as a compact array of the input's data type.

    Numbers, alone or in lists, adopt the data type if it can hold them. Arrays must have it, but
    int64 and bool arrays are taken for int32 when every value fits.

    Raises:
        InputError: the value is no array or cannot be taken for this data type.
    """
    try:
        array = np.asarray(value)
    except Exception as err:  # whatever a foreign object's conversion raises
        raise InputError(f'input "{name}": expected {dtype}, got no array: {err}') from err
    given = array.dtype.newbyteorder("=")
    if given == dtype:
        return array.astype(dtype, order="C", copy=not is_plain(array))
    if _is_python(value):
        return _adopt(name, dtype, array)
    if dtype == np.int32 and (given == np.int64 or given == np.bool_):
        return _fitting(name, dtype, array)
    raise InputError(f'input "{name}": expected {dtype}, got {_kind(array)}{_hint(dtype, array)}')


def _is_python(value: object) -> bool:
    """Whether the value is made of single numbers, Python's or NumPy's, and lists of them."""
    kinds = (int, float, complex, str, np.generic, type(None))
    return all(isinstance(leaf, kinds) for leaf in _leaves(value))


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _adopt(name: str, dtype: np.dtype[Any], array: Array) -> Array:
    if array.size == 0:
        return np.zeros(array.shape, dtype)
    is_whole = array.dtype.kind in "biu" or (array.dtype.kind == "O" and _all_ints(array))
    if is_whole and dtype.kind in "iu":
        return _fitting(name, dtype, array)
    if dtype.kind == "f" and array.dtype.kind in "biuf":
        with np.errstate(over="ignore"):
            return array.astype(dtype)
    raise InputError(f'input "{name}": expected {dtype}, got {_kind(array)}')


def _all_ints(array: Array) -> bool:
    """Whether an object array holds integers only: those beyond 64 bits come as objects."""
    return all(isinstance(item, int) for item in array.flat)


def _fitting(name: str, dtype: np.dtype[Any], array: Array) -> Array:
    if array.dtype != np.bool_ and array.size:
        info = np.iinfo(dtype)
        for extreme in (array.min(), array.max()):
            if not info.min <= int(extreme) <= info.max:
                raise InputError(f'input "{name}": the value {extreme} does not fit {dtype}')
    return array.astype(dtype, order="C")


def _kind(array: Array) -> str:
    match array.dtype.kind:
        case "U" | "S":
            return "text"
        case "O":
            return "objects that are no numbers"
        case _:
            return str(array.dtype)


def _hint(dtype: np.dtype[Any], array: Array) -> str:
    if array.dtype.kind in "biuf":
        return f"\nhint: convert it: array.astype(numpy.{dtype})"
    return ""
