"""Reductions over any axes, positions of extremes, running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
from rten_aot.dialect.registry import Layout, Pattern, define
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


def reduce_over(
    shape: Sequence[tirx.Expr],
    axes: Sequence[int],
    kind: str,
    name: str,
    value: Callable[[Sequence[tirx.Expr]], tirx.Expr],
) -> te.Tensor:
    """``value`` of every index of ``shape``, reduced over ``axes``, each of which keeps size 1."""
    kept = [index(1) if i in axes else size for i, size in enumerate(shape)]
    variables = {i: te.reduce_axis((index(0), shape[i]), name=f"r{i}") for i in sorted(axes)}

    def element(*indices: tirx.Var) -> tirx.Expr:
        term = value([variables[i].var if i in variables else v for i, v in enumerate(indices)])
        if not variables:
            return term
        combine = te.sum if kind == "sum" and is_float(dtype_of(term)) else reducer(kind)
        return combine(term, axis=list(variables.values()))

    return te.compute(tuple(kept), element, name=name)


def reduce_axes(
    x: te.Tensor, axes: Sequence[int], kind: str, name: str, function: Scalar = lambda v: v
) -> te.Tensor:
    """``function`` of the elements, reduced over ``axes``, each of which stays with size 1."""
    return reduce_over(x.shape, axes, kind, name, lambda i: function(x(*i)))


_KINDS = {"reduce_max": "max", "reduce_min": "min", "reduce_prod": "prod", "reduce_sum": "sum"}


def _define_reduction(name: str, kind: str) -> None:
    @define(name, layout=Layout.AXES)
    def apply(x: te.Tensor, *, axes: list[int]) -> te.Tensor:
        return reduce_axes(x, axes, kind, name)


for _name, _kind in _KINDS.items():
    _define_reduction(_name, _kind)


def _square(x: tirx.Expr) -> tirx.Expr:
    return multiply(x, x)


def element_count(x: te.Tensor, axes: Sequence[int]) -> tirx.Expr:
    """How many elements one result of a reduction over ``axes`` takes in."""
    return product([x.shape[i] for i in axes])


def over_count(total: tirx.Expr, count: tirx.Expr) -> tirx.Expr:
    """A float sum divided by a number of elements; NaN for none."""
    if static(count) == 0:
        # TVM refuses to build a division by a constant zero.
        return number(math.nan, total)
    return total / tirx.Cast(dtype_of(total), count)


@define("reduce_mean", layout=Layout.AXES)
def reduce_mean(x: te.Tensor, *, axes: list[int]) -> te.Tensor:
    """The mean over axes that stay with size 1: of no elements NaN; truncated for integers."""
    total = reduce_axes(x, axes, "sum", "total")
    count = element_count(x, axes)

    def mean(*i: tirx.Var) -> tirx.Expr:
        value = total(*i)
        if is_float(dtype_of(value)):
            return over_count(value, count)
        whole = tirx.truncdiv(tirx.Cast("int64", value), tirx.max(count, index(1)))
        return tirx.Cast(dtype_of(value), whole)

    return te.compute(tuple(total.shape), mean, name="mean")


@define("reduce_sum_square", layout=Layout.AXES)
def reduce_sum_square(x: te.Tensor, *, axes: list[int]) -> te.Tensor:
    """The sum of squares over axes that stay with size 1."""
    return reduce_axes(x, axes, "sum", "sum_square", _square)


@define("reduce_l2", layout=Layout.AXES)
def reduce_l2(x: te.Tensor, *, axes: list[int]) -> te.Tensor:
    """The square root of the sum of squares over axes that stay with size 1."""
    total = reduce_axes(x, axes, "sum", "sum_square", _square)
    return te.compute(tuple(total.shape), lambda *i: tirx.sqrt(total(*i)), name="l2")


def _first_position(x: te.Tensor, axis: int, kind: str) -> te.Tensor:
    best = reduce_axes(x, [axis], kind, "best")
    along = te.reduce_axis((index(0), x.shape[axis]), name="r")
    nowhere = tirx.const(2**31 - 1, "int32")

    def element(*indices: tirx.Var) -> tirx.Expr:
        own = [along.var if i == axis else v for i, v in enumerate(indices)]
        value, wanted = x(*own), best(*indices)
        found = equal(value, wanted)
        if is_float(dtype_of(value)):
            found = tirx.Or(found, tirx.And(tirx.isnan(value), tirx.isnan(wanted)))
        position = tirx.Select(found, tirx.Cast("int32", along.var), nowhere)
        return reducer("min")(position, axis=along)

    return te.compute(tuple(best.shape), element, name="position")


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
