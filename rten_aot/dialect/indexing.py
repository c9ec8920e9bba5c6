"""Operators that read where an index tensor says.

Negative indices count from the end. An index outside its axis is a run-time failure; a kernel goes
on with zeros there.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te, tirx
from tvm.tirx import Expr

from rten_aot.dialect.failure import Failure, fail
from rten_aot.dialect.loops import int64, static
from rten_aot.dialect.registry import Pattern, define
from rten_aot.dialect.scalar import dtype_of
from rten_aot.dialect.storage import stored


def from_end(index: Expr, size: Expr) -> Expr:
    """``index`` as int64, counted from the end of an axis of ``size`` if negative."""
    wide = index if static(index) is not None else tirx.Cast("int64", index)
    return tirx.Select(wide < int64(0), wide + size, wide)


def in_range(index: Expr, size: Expr) -> Expr:
    """Whether an axis of ``size`` has this element."""
    return tirx.And(index >= int64(0), index < size)


def out_of_range(node: int, index: Expr, dtype: str) -> Expr:
    """Zero, after the failure has been recorded."""
    return tirx.Cast(dtype, fail(Failure.INDEX_OUT_OF_RANGE, node, index))


def _checked(value: Expr, raw: Sequence[Expr], ok: Sequence[Expr], node: int, dtype: str) -> Expr:
    for index, condition in zip(reversed(raw), reversed(ok), strict=True):
        value = tirx.if_then_else(condition, value, out_of_range(node, index, dtype))
    return value


@define("gather", pattern=Pattern.INJECTIVE)
def gather(x: te.Tensor, indices: te.Tensor, *, axis: int, node: int) -> te.Tensor:
    """Slices of ``x`` along ``axis``, in the order and shape of ``indices``.

    They are float32 where ``x`` is float16.
    """
    rank = len(indices.shape)

    def element(*i: Expr) -> Expr:
        raw = indices(*i[axis : axis + rank])
        index = from_end(raw, x.shape[axis])
        value = stored(x(*i[:axis], index, *i[axis + rank :]))
        return _checked(value, [raw], [in_range(index, x.shape[axis])], node, dtype_of(value))

    shape = [*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]]
    return te.compute(shape, element, name="gather")


@define("gather_elements", pattern=Pattern.INJECTIVE)
def gather_elements(x: te.Tensor, indices: te.Tensor, *, axis: int, node: int) -> te.Tensor:
    """Single elements of ``x``: from where ``indices`` says along ``axis``, else in place."""

    def element(*i: Expr) -> Expr:
        raw = indices(*i)
        index = from_end(raw, x.shape[axis])
        value = x(*i[:axis], index, *i[axis + 1 :])
        return _checked(value, [raw], [in_range(index, x.shape[axis])], node, str(x.dtype))

    return te.compute(list(indices.shape), element, name="gather_elements")


@define("gather_nd", pattern=Pattern.INJECTIVE)
def gather_nd(x: te.Tensor, indices: te.Tensor, *, batch_dims: int, node: int) -> te.Tensor:
    """Slices of ``x`` at the index tuples in the last axis of ``indices``, whose size is static."""
    depth = static(indices.shape[-1])
    assert depth is not None
    rank = len(indices.shape) - 1

    def element(*i: Expr) -> Expr:
        raw = [indices(*i[:rank], int64(k)) for k in range(depth)]
        sizes = x.shape[batch_dims : batch_dims + depth]
        where = [from_end(r, size) for r, size in zip(raw, sizes, strict=True)]
        ok = [in_range(w, size) for w, size in zip(where, sizes, strict=True)]
        value = x(*i[:batch_dims], *where, *i[rank:])
        return _checked(value, raw, ok, node, str(x.dtype))

    shape = [*indices.shape[:-1], *x.shape[batch_dims + depth :]]
    return te.compute(shape, element, name="gather_nd")


@define("diagonal", pattern=Pattern.INJECTIVE)
def diagonal(x: te.Tensor, *, first: int, second: int) -> te.Tensor:
    """The elements whose indices along the axes ``first`` < ``second`` agree; ``second`` goes."""

    def element(*i: Expr) -> Expr:
        return x(*i[:second], i[first], *i[second:])

    shape = [*x.shape[:second], *x.shape[second + 1 :]]
    return te.compute(shape, element, name="diagonal")


@define("one_hot", pattern=Pattern.INJECTIVE)
def one_hot(indices: te.Tensor, depth: list[Expr], values: te.Tensor, *, axis: int) -> te.Tensor:
    """``values[1]`` where the new axis at ``axis`` is at the index, ``values[0]`` elsewhere.

    An index outside [-depth, depth) has no place: its row is all ``values[0]``.
    """
    shape = [*indices.shape[:axis], depth[0], *indices.shape[axis:]]

    def element(*i: Expr) -> Expr:
        hot = tirx.EQ(from_end(indices(*i[:axis], *i[axis + 1 :]), depth[0]), i[axis])
        return tirx.Select(hot, values(int64(1)), values(int64(0)))

    return te.compute(shape, element, name="one_hot")
