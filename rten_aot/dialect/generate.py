"""Operators that make tensors from sizes and numbers."""

from __future__ import annotations

from tvm import te, tirx
from tvm.tirx import Expr

from rten_aot.dialect.loops import int64
from rten_aot.dialect.registry import Pattern, define


@define("full", pattern=Pattern.INJECTIVE)
def full(sizes: list[Expr], *, value: int | float, dtype: str) -> te.Tensor:
    """``value`` everywhere."""
    return te.compute(sizes, lambda *_: tirx.const(value, dtype), name="full")


@define("arange", pattern=Pattern.INJECTIVE)
def arange(start_and_step: list[Expr], size: list[Expr], *, dtype: str) -> te.Tensor:
    """The whole numbers ``start + i * step``; start and step may be sizes."""
    start, step = start_and_step
    return te.compute(size, lambda i: tirx.Cast(dtype, start + i * step), name="arange")


@define("float_arange", pattern=Pattern.INJECTIVE)
def float_arange(size: list[Expr], *, start: float, step: float) -> te.Tensor:
    """The float32 numbers ``start + i * step``."""

    def element(i: Expr) -> Expr:
        return tirx.const(start, "float32") + tirx.Cast("float32", i) * tirx.const(step, "float32")

    return te.compute(size, element, name="arange")


@define("range", pattern=Pattern.INJECTIVE)
def range_(start: te.Tensor, delta: te.Tensor, size: list[Expr]) -> te.Tensor:
    """The numbers ``start + i * delta``, of the type of both tensors, which have one element."""

    def only(x: te.Tensor) -> Expr:
        return x(*[int64(0)] * len(x.shape))

    def element(i: Expr) -> Expr:
        return only(start) + tirx.Cast(str(start.dtype), i) * only(delta)

    return te.compute(size, element, name="range")


@define("eye", pattern=Pattern.INJECTIVE)
def eye(sizes: list[Expr], *, k: int, dtype: str) -> te.Tensor:
    """A matrix with ones on the ``k``-th diagonal, counted to the right, and zeros elsewhere."""

    def element(row: Expr, column: Expr) -> Expr:
        on = tirx.EQ(column - row, int64(k))
        return tirx.Select(on, tirx.const(1, dtype), tirx.const(0, dtype))

    return te.compute(sizes, element, name="eye")


@define("trilu", pattern=Pattern.INJECTIVE)
def trilu(x: te.Tensor, k: te.Tensor | list[Expr], *, upper: bool) -> te.Tensor:
    """``x`` with zeros below (``upper``) or above the ``k``-th diagonal of its last two axes.

    ``k`` is a list of one size, or an integer tensor of one element.
    """
    if isinstance(k, list):
        shift = k[0]
    else:
        shift = tirx.Cast("int64", k(*[int64(0)] * len(k.shape)))

    def element(*i: Expr) -> Expr:
        distance = i[-1] - i[-2]
        keep = distance >= shift if upper else distance <= shift
        return tirx.Select(keep, x(*i), tirx.const(0, str(x.dtype)))

    return te.compute(list(x.shape), element, name="trilu")
