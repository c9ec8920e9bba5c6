"""Reductions, ArgMax, ArgMin and CumSum: https://onnx.ai/onnx/operators/."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, tirx

import rten_aot.dialect.lines_on_gpu
import rten_aot.dialect.reduce  # noqa: F401  (both define what is emitted here)
from rten_aot.importer.context import Contents, Integers, OpContext
from rten_aot.importer.known import Element, as_expr, is_symbolic, numbers_of, whole, widened
from rten_aot.importer.registry import op
from rten_aot.importer.runtime_sizes import counted, measured
from rten_aot.importer.sizes import at_least, expr, one_element, product

_LIMITS = "with keepdims 0, the number of axes must be known at compile time"

Pair = Callable[[tirx.Expr, tirx.Expr], tirx.Expr]
NumPy = Callable[..., npt.NDArray[Any]]


def _axes(ctx: OpContext, axes: relax.Expr | None, rank: int) -> list[int]:
    """The reduced axes, counted from 0, each once; all if none are given."""
    stated: Sequence[Any] | None = ctx.attrs.optional_ints("axes")
    if axes is not None:
        stated = None if ctx.shape(axes) == [0] else ctx.ints(axes, "axes")
    if not stated:
        return list(range(rank))
    if any(is_symbolic(axis) for axis in stated):
        ctx.fail("axes must be constant")
    return sorted({ctx.normalize_axis(int(axis), rank, "axes") for axis in stated})


def _over_computed_axes(
    ctx: OpContext, call: str, x: relax.Expr, axes: relax.Expr, *, keep_dims: bool
) -> relax.Expr:
    """A reduction over axes that are known at run time only."""
    if ctx.dtype(axes) != "int32":
        ctx.shape_error(f"axes are {ctx.dtype(axes)}; needed: int32")
    rank, shape = ctx.rank(x), ctx.shape_expr(ctx.shape(x))
    if rank == 0:
        ctx.equal_dims(product(ctx.shape(axes)), 0, "a scalar has no axes; sizes")
        return ctx.call(call, x, axes=[])
    left = rank - (0 if keep_dims else counted(ctx, axes, "axes"))
    if left < 0:
        ctx.shape_error(f"{rank - left} axes are named of a tensor of rank {rank}")
    vector = ctx.call("reduced_sizes", axes, shape, node=ctx.node_index)
    values = measured(ctx, vector, 2 * rank, "reduced")
    kept, extents = (ctx.shape_expr(values[start : start + rank]) for start in (0, rank))
    result = ctx.call("reduce_by", x, kept, extents, reduction=call)
    if keep_dims:
        return result
    if left == 0:
        message = "axes name one axis twice"
        ctx.require(tirx.EQ(expr(product(values[:rank])), expr(1)), message)
        return ctx.reshape(result, [])
    vector = ctx.call("axes_sizes", axes, kept, insert=False, node=ctx.node_index)
    return ctx.reshape(result, measured(ctx, vector, left, "shape"))


def _without(ctx: OpContext, x: relax.Expr, axes: Sequence[int]) -> relax.Expr:
    """``x`` without axes that have size 1."""
    if not axes:
        return x
    return ctx.reshape(x, [size for i, size in enumerate(ctx.shape(x)) if i not in axes])


def _fold(
    ctx: OpContext,
    x: relax.Expr,
    axes: list[int],
    numbers: NumPy,
    pair: Pair | None,
    *,
    keep_dims: bool,
) -> relax.Expr | None:
    content, dtype = ctx.contents(x), ctx.dtype(x)
    if content is None:
        return None
    array = numbers_of(ctx, x)
    if array is not None:
        # NumPy has no extreme or mean of nothing; the kernel has.
        if array.size == 0 and numbers not in (np.sum, np.prod):
            return None
        wide = widened(array) if dtype == "float32" else array.astype("int64")
        with np.errstate(all="ignore"):
            return ctx.known(np.asarray(numbers(wide, axis=tuple(axes), keepdims=keep_dims)), dtype)
    if pair is None:
        return None
    return _fold_symbolic(ctx, content, axes, pair, dtype, keep_dims=keep_dims)


def _fold_symbolic(
    ctx: OpContext, content: Contents, axes: list[int], pair: Pair, dtype: str, *, keep_dims: bool
) -> relax.Expr | None:
    kept = [i for i in range(content.ndim) if i not in axes]
    rows = content.transpose([*kept, *axes]).reshape(*[content.shape[i] for i in kept], -1)
    result = np.empty(rows.shape[:-1], dtype=object)
    for i in np.ndindex(result.shape):
        elements: list[Element | None] = [whole(v) for v in rows[i]]
        if not elements or any(e is None for e in elements):
            return None
        result[i] = functools.reduce(pair, [as_expr(e) for e in elements if e is not None])
    if keep_dims:
        result = result.reshape([1 if i in axes else n for i, n in enumerate(content.shape)])
    return ctx.known(result, dtype)


def _reduction(
    name: str,
    call: str,
    numbers: NumPy,
    pair: Pair | None = None,
) -> None:
    """Register a reduction: ``numbers`` is NumPy's, ``pair`` that of two sizes."""

    @op(name, limits=_LIMITS, data_dependent=True)
    def convert(ctx: OpContext, x: relax.Expr, axes: Integers | None = None) -> relax.Expr:
        keep_dims = ctx.attrs.bool("keep_dims")
        if axes is not None and ctx.contents(axes) is None and ctx.shape(axes) != [0]:
            ctx.attrs.ignore("axes", "the input takes its place")
            return _over_computed_axes(ctx, call, x, axes, keep_dims=keep_dims)
        over = _axes(ctx, axes, ctx.rank(x))
        folded = _fold(ctx, x, over, numbers, pair, keep_dims=keep_dims)
        if folded is not None:
            return folded
        result = ctx.call(call, x, axes=over)
        return result if keep_dims else _without(ctx, result, over)


def _mean(x: npt.NDArray[Any], **options: Any) -> npt.NDArray[Any]:
    mean = np.asarray(np.mean(x, **options))
    return np.trunc(mean) if x.dtype == np.int64 else mean


def _sum_square(x: npt.NDArray[Any], **options: Any) -> npt.NDArray[Any]:
    return np.asarray(np.sum(x * x, **options))


def _l2(x: npt.NDArray[Any], **options: Any) -> npt.NDArray[Any]:
    # As floats: the squares of large integers have a sum of more than 64 bits.
    root = np.asarray(np.sqrt(_sum_square(x.astype(np.float64), **options)))
    return np.trunc(root) if x.dtype == np.int64 else root


_reduction("ReduceL2", "reduce_l2", _l2)
_reduction("ReduceMax", "reduce_max", np.max, tirx.max)
_reduction("ReduceMean", "reduce_mean", _mean)
_reduction("ReduceMin", "reduce_min", np.min, tirx.min)
_reduction("ReduceProd", "reduce_prod", np.prod, lambda a, b: a * b)
_reduction("ReduceSum", "reduce_sum", np.sum, lambda a, b: a + b)
_reduction("ReduceSumSquare", "reduce_sum_square", _sum_square)


def _position(name: str, call: str) -> None:
    @op(name)
    def convert(ctx: OpContext, x: relax.Expr) -> relax.Expr:
        axis = ctx.normalize_axis(ctx.attrs.int("axis"), ctx.rank(x))
        keep_dims = ctx.attrs.bool("keep_dims")
        at_least(ctx, ctx.shape(x)[axis], 1, f"axis {axis} is empty: it has no extreme element")
        result = ctx.call(call, x, axis=axis)
        return result if keep_dims else _without(ctx, result, [axis])


_position("ArgMax", "arg_max")
_position("ArgMin", "arg_min")


@op("CumSum")
def cumsum(ctx: OpContext, x: relax.Expr, axis: Integers) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__CumSum.html, neither exclusive nor reverse."""
    axis = one_element(ctx, axis, "the axis")
    known, shape = numbers_of(ctx, axis), ctx.shape(x)
    if known is None:
        vector = ctx.call("around_axis", axis, ctx.shape_expr(shape), node=ctx.node_index)
        lined = ctx.reshape(x, measured(ctx, vector, 3, "around_axis"))
        return ctx.reshape(ctx.call("cumsum", lined, axis=1), shape)
    along = ctx.normalize_axis(int(known), len(shape))
    numbers = numbers_of(ctx, x)
    if numbers is not None and ctx.dtype(x) != "float32":
        return ctx.known(np.cumsum(numbers, along, dtype="int64"), ctx.dtype(x))
    return ctx.call("cumsum", x, axis=along)
