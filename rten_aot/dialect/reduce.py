"""Reductions over any axes, positions of extremes, running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from tvm import te, tirx

from rten_aot.dialect.broadcast import index, static
from rten_aot.dialect.direct import direct
from rten_aot.dialect.loops import (
    contiguous,
    flat_load,
    flat_store,
    lanes_of,
    loop,
    parallel,
    product,
)
from rten_aot.dialect.registry import UNANNOTATED, Annotations, Layout, Pattern, define
from rten_aot.dialect.scalar import (
    add,
    dtype_of,
    equal,
    is_float,
    maximum,
    minimum,
    multiply,
    number,
)

Scalar = Callable[[tirx.Expr], tirx.Expr]
Reducer = Callable[..., tirx.Expr]


def least(dtype: str) -> tirx.Expr:
    """The identity of the maximum."""
    return tirx.const(-math.inf if is_float(dtype) else int(np.iinfo(dtype).min), dtype)


def greatest(dtype: str) -> tirx.Expr:
    """The identity of the minimum."""
    return tirx.const(math.inf if is_float(dtype) else int(np.iinfo(dtype).max), dtype)


@cache
def reducer(kind: str) -> Reducer:
    """The reducer "sum", "prod", "max" or "min"; integers wrap, NaN propagates."""
    combine, identity = {
        "sum": (add, lambda dtype: tirx.const(0, dtype)),
        "prod": (multiply, lambda dtype: tirx.const(1, dtype)),
        "max": (maximum, least),
        "min": (minimum, greatest),
    }[kind]
    made: Reducer = te.comm_reducer(combine, identity, name=kind)
    return made


def _combined(term: tirx.Expr, kind: str, over: Sequence[tirx.IterVar]) -> tirx.Expr:
    if not over:
        return term
    # Neither floats nor sums in 64 bits wrap.
    plain = kind == "sum" and (is_float(dtype_of(term)) or dtype_of(term) == "int64")
    return (te.sum if plain else reducer(kind))(term, axis=list(over))


def reduce_over(
    shape: Sequence[tirx.Expr],
    axes: Sequence[int],
    kind: str,
    name: str,
    value: Callable[[Sequence[tirx.Expr]], tirx.Expr],
    annotations: Annotations = UNANNOTATED,
) -> te.Tensor:
    """``value`` of every index of ``shape``, reduced over ``axes``, each of which keeps size 1."""
    kept = [index(1) if i in axes else size for i, size in enumerate(shape)]
    variables = {i: te.reduce_axis((index(0), shape[i]), name=f"r{i}") for i in sorted(axes)}

    def element(*indices: tirx.Var) -> tirx.Expr:
        term = value([variables[i].var if i in variables else v for i, v in enumerate(indices)])
        return _combined(term, kind, list(variables.values()))

    return te.compute(tuple(kept), element, name=name, attrs=dict(annotations))


def _itself(x: tirx.Expr) -> tirx.Expr:
    return x


def reduce_axes(
    x: te.Tensor, axes: Sequence[int], kind: str, name: str, function: Scalar = _itself
) -> te.Tensor:
    """``function`` of the elements, reduced over ``axes``, each of which stays with size 1."""
    return reduce_over(x.shape, axes, kind, name, lambda i: function(x(*i)))


def element_count(x: te.Tensor, axes: Sequence[int]) -> tirx.Expr:
    """How many elements one result of a reduction over ``axes`` takes in."""
    return product([x.shape[i] for i in axes])


def over_count(total: tirx.Expr, count: tirx.Expr) -> tirx.Expr:
    """A float sum divided by a number of elements; NaN for none."""
    if static(count) == 0:
        # TVM refuses to build a division by a constant zero.
        return number(math.nan, total)
    return total / tirx.Cast(dtype_of(total), count)


def _square(x: tirx.Expr) -> tirx.Expr:
    return multiply(x, x)


def _exact(x: tirx.Expr) -> tirx.Expr:
    return x if is_float(dtype_of(x)) else tirx.Cast("int64", x)


def _float_square(x: tirx.Expr) -> tirx.Expr:
    # The sum of a few large integers' squares is more than 64 bits hold.
    value = x if is_float(dtype_of(x)) else tirx.Cast("float64", x)
    return value * value


def _root(total: tirx.Expr, _count: tirx.Expr, dtype: str) -> tirx.Expr:
    root = tirx.sqrt(total)
    # What does not fit wraps, which conversions from floats do not do.
    return root if is_float(dtype) else tirx.Cast(dtype, tirx.Cast("int64", root))


def _mean(total: tirx.Expr, count: tirx.Expr, dtype: str) -> tirx.Expr:
    if is_float(dtype):
        return over_count(total, count)
    return tirx.Cast(dtype, tirx.truncdiv(total, tirx.max(count, index(1))))


@dataclass(frozen=True)
class _Reduction:
    """``finish`` takes the combined terms, their number and the type of the result."""

    kind: str
    term: Scalar = _itself
    finish: Callable[[tirx.Expr, tirx.Expr, str], tirx.Expr] | None = None

    def finished(self, total: te.Tensor, count: tirx.Expr, dtype: str, name: str) -> te.Tensor:
        finish = self.finish
        if finish is None:
            return total
        return te.compute(tuple(total.shape), lambda *i: finish(total(*i), count, dtype), name=name)


# The mean of no elements is NaN, of integers 0. Means and roots of integers are truncated.
_REDUCTIONS: dict[str, _Reduction] = {
    "reduce_l2": _Reduction("sum", _float_square, _root),
    "reduce_max": _Reduction("max"),
    "reduce_mean": _Reduction("sum", _exact, _mean),
    "reduce_min": _Reduction("min"),
    "reduce_prod": _Reduction("prod"),
    "reduce_sum": _Reduction("sum"),
    "reduce_sum_square": _Reduction("sum", _square),
}


def _define_reduction(name: str, how: _Reduction) -> None:
    @define(name, layout=Layout.AXES)
    def apply(x: te.Tensor, *, axes: list[int]) -> te.Tensor:
        total = reduce_axes(x, axes, how.kind, name if how.finish is None else "total", how.term)
        return how.finished(total, element_count(x, axes), str(x.dtype), name)


for _name, _how in _REDUCTIONS.items():
    _define_reduction(_name, _how)


@define("reduce_by")
def reduce_by(
    x: te.Tensor, kept: list[tirx.Expr], extents: list[tirx.Expr], *, reduction: str
) -> te.Tensor:
    """The operator ``reduction`` over axes that are known at run time only.

    Along axis ``a`` there are ``kept[a]`` results, each of ``extents[a]`` elements; the axis is
    reduced or not, so one of both numbers is 1.
    """
    how = _REDUCTIONS[reduction]
    variables = [te.reduce_axis((index(0), n), name=f"r{a}") for a, n in enumerate(extents)]

    def element(*indices: tirx.Var) -> tirx.Expr:
        term = how.term(x(*[i + r.var for i, r in zip(indices, variables, strict=True)]))
        return _combined(term, how.kind, variables)

    total = te.compute(tuple(kept), element, name="total")
    return how.finished(total, product(extents), str(x.dtype), reduction)


def _first_position(x: te.Tensor, axis: int, kind: str) -> te.Tensor:
    best = reduce_axes(x, [axis], kind, "best")
    along = te.reduce_axis((index(0), x.shape[axis]), name="r")
    # int64 as the axis itself: TVM widens comparisons with its variable, and one that is half
    # widened is no reduction to the schedules any more.
    nowhere = tirx.const(2**31 - 1, "int64")

    def element(*indices: tirx.Var) -> tirx.Expr:
        own = [along.var if i == axis else v for i, v in enumerate(indices)]
        value, wanted = x(*own), best(*indices)
        found = equal(value, wanted)
        if is_float(dtype_of(value)):
            found = tirx.Or(found, tirx.And(tirx.isnan(value), tirx.isnan(wanted)))
        return reducer("min")(tirx.Select(found, along.var, nowhere), axis=along)

    first = te.compute(tuple(best.shape), element, name="first")
    return te.compute(tuple(best.shape), lambda *i: tirx.Cast("int32", first(*i)), name="position")


@define("arg_max", layout=Layout.AXES)
def arg_max(x: te.Tensor, *, axis: int) -> te.Tensor:
    """The first position of the greatest element along an axis that stays with size 1.

    NaN counts as greater than every number.
    """
    return _first_position(x, axis, "max")


@define("arg_min", layout=Layout.AXES)
def arg_min(x: te.Tensor, *, axis: int) -> te.Tensor:
    """The first position of the least element along an axis that stays with size 1.

    NaN counts as less than every number, as in NumPy.
    """
    return _first_position(x, axis, "min")


@define("cumsum", layout=Layout.AXES, pattern=Pattern.OPAQUE)
def cumsum(x: te.Tensor, *, axis: int) -> te.Tensor:
    """The running sum along an axis."""
    shape = list(x.shape)
    outer, extent, inner = product(shape[:axis]), shape[axis], product(shape[axis + 1 :])

    def body(inputs: Sequence[tirx.Buffer], outputs: Sequence[tirx.Buffer]) -> tirx.Stmt:
        source, target = inputs[0], outputs[0]

        def row(block: tirx.Expr, k: tirx.Expr) -> tirx.Stmt:
            start = (block * extent + k) * inner

            def element(i: tirx.Expr, *, first: bool) -> tirx.Stmt:
                value = flat_load(source, start + i)
                if not first:
                    value = add(flat_load(target, start - inner + i), value)
                return flat_store(target, start + i, value)

            lanes = lanes_of(str(x.dtype))
            return tirx.IfThenElse(
                tirx.EQ(k, index(0)),
                contiguous(inner, lanes, lambda i: element(i, first=True)),
                contiguous(inner, lanes, lambda i: element(i, first=False)),
            )

        return parallel(outer, product(shape), lambda b: loop(extent, lambda k: row(b, k)))

    return direct([shape], [x], body, [str(x.dtype)], "cumsum")
