"""Quantisation to 8-bit integers and back, per tensor or along one axis."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te, tirx

from rten_aot.dialect.broadcast import broadcast_indices
from rten_aot.dialect.convert import cast_element, saturate
from rten_aot.dialect.registry import Layout, Pattern, define
from rten_aot.dialect.scalar import (
    at_least,
    at_most,
    negate,
    number,
    subtract,
    widen,
)


def _parameter(p: te.Tensor, x: te.Tensor, i: Sequence[tirx.Expr], axis: int) -> tirx.Expr:
    """The scale or zero point of the element of x at ``i``: a scalar's, or one of a vector's."""
    if not len(p.shape):
        return p()
    return p(*broadcast_indices(list(p.shape), [x.shape[axis]], [i[axis]]))


def quantize_element(
    x: tirx.Expr, scale: tirx.Expr, zero_point: tirx.Expr | None, dtype: str
) -> tirx.Expr:
    """``x / scale`` rounded half to even, plus the zero point, kept within an 8-bit type."""
    value = tirx.nearbyint(x / scale)
    if zero_point is not None:
        # Exact where it matters: beyond 2^24 the sum is out of range either way.
        value = value + tirx.Cast("float32", zero_point)
    return cast_element(value, dtype)


@define("quantize_linear", layout=Layout.AXES, pattern=Pattern.BROADCAST)
def quantize_linear(
    x: te.Tensor,
    scale: te.Tensor,
    zero_point: te.Tensor | None = None,
    *,
    axis: int,
    dtype: str,
) -> te.Tensor:
    """``quantize_element`` of float32 x with a scalar scale, or a vector along ``axis``."""

    def element(*i: tirx.Var) -> tirx.Expr:
        shift = None if zero_point is None else _parameter(zero_point, x, i, axis)
        return quantize_element(x(*i), _parameter(scale, x, i, axis), shift, dtype)

    return te.compute(tuple(x.shape), element, name="quantize")


@define("dequantize_linear", layout=Layout.AXES, pattern=Pattern.BROADCAST)
def dequantize_linear(
    x: te.Tensor, scale: te.Tensor, zero_point: te.Tensor | None = None, *, axis: int
) -> te.Tensor:
    """``(x - zero_point) * scale`` with a scalar scale, or a vector along ``axis``."""

    def element(*i: tirx.Var) -> tirx.Expr:
        value = x(*i)
        if zero_point is not None:
            value = widen(value) - widen(_parameter(zero_point, x, i, axis))
        return tirx.Cast("float32", value) * _parameter(scale, x, i, axis)

    return te.compute(tuple(x.shape), element, name="dequantize")


@define("dynamic_scale", layout=Layout.FIXED, pattern=Pattern.ELEMENTWISE)
def dynamic_scale(low: te.Tensor, high: te.Tensor) -> te.Tensor:
    """The scale at which uint8 covers the values from ``low`` to ``high`` and zero.

    It is 1 where there is no value but zero.
    """

    def element(*i: tirx.Var) -> tirx.Expr:
        span = subtract(at_least(high(*i), 0.0), at_most(low(*i), 0.0))
        empty = span.equal(number(0.0, span))
        return tirx.Select(empty, number(1.0, span), span / number(255.0, span))

    return te.compute(tuple(low.shape), element, name="scale")


@define("dynamic_zero_point", layout=Layout.FIXED, pattern=Pattern.ELEMENTWISE)
def dynamic_zero_point(low: te.Tensor, scale: te.Tensor) -> te.Tensor:
    """The uint8 that stands for zero, where 0 stands for ``low`` or, if that is positive, zero."""

    def element(*i: tirx.Var) -> tirx.Expr:
        exact = negate(at_most(low(*i), 0.0) / scale(*i))
        return cast_element(tirx.nearbyint(saturate(exact, "uint8")), "uint8")

    return te.compute(tuple(low.shape), element, name="zero_point")
