"""Conversion between element types."""

from __future__ import annotations

import numpy as np
from tvm import te, tirx

from rten_aot.dialect.registry import Layout, Pattern, define
from rten_aot.dialect.scalar import dtype_of, is_float, number

# The greatest float32 below 2^31: the machine's conversion is undefined beyond.
LARGEST_CONVERTIBLE = 2147483520.0


def cast_element(x: tirx.Expr, dtype: str) -> tirx.Expr:
    """An element in another type.

    Floats are truncated and kept within the integer type, NaN becomes 0; integers keep their low
    bits.
    """
    source = dtype_of(x)
    if source == dtype:
        return x
    if not is_float(source) or is_float(dtype):
        return tirx.Cast(dtype, x)
    value = tirx.Select(tirx.isnan(x), number(0.0, x), x)
    if dtype != "int32":
        return tirx.Cast(dtype, tirx.Cast("int32", saturate(value, dtype)))
    low = number(-(2.0**31), x)
    high = number(LARGEST_CONVERTIBLE, x)
    kept = tirx.Select(value < low, low, tirx.Select(value > high, high, value))
    # No float32 lies between the largest convertible one and 2^31.
    beyond = value >= number(2.0**31, x)
    return tirx.Select(beyond, tirx.const(2**31 - 1, "int32"), tirx.Cast("int32", kept))


def saturate(x: tirx.Expr, dtype: str) -> tirx.Expr:
    """A float kept within the range of an 8-bit integer type."""
    info = np.iinfo(dtype)
    low, high = number(float(info.min), x), number(float(info.max), x)
    return tirx.Select(x < low, low, tirx.Select(x > high, high, x))


@define("cast", layout=Layout.ELEMENTWISE, pattern=Pattern.ELEMENTWISE)
def cast(x: te.Tensor, *, dtype: str) -> te.Tensor:
    """X in another element type; see ``cast_element``."""
    return te.compute(tuple(x.shape), lambda *i: cast_element(x(*i), dtype), name="cast")
