"""Sums of products as matrix products: convolutions, ONNX MatMul, and whatever else is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Expr

from rten_aot.targets.common.context import Context
from rten_aot.targets.common.expr import constant_int, free_vars, i64, is_call, substitute, walk
from rten_aot.targets.common.nests import product
from rten_aot.targets.common.stages import Axis, Stage


@dataclass(frozen=True)
class Contraction:
    """``result[batch, row, column] = sum over terms of left * right``.

    ``left`` does not depend on columns, nor ``right`` on rows.
    """

    batch: list[Axis]
    rows: list[Axis]
    columns: list[Axis]
    terms: list[Axis]
    left: Expr
    right: Expr
    where: list[Expr]
    """The indices of the stage's result."""


def contraction(ctx: Context, stage: Stage) -> Contraction | None:
    """The stage as a matrix product, or None if it is none."""
    reducer = stage.reducer
    if reducer is None or not reducer.is_sum or not _is_zero(reducer.init):
        return None
    factors = _factors(stage.value)
    if factors is None:
        return None
    terms = [Axis(ctx.loops.var(a.var.name, a.extent), a.extent) for a in stage.reduce]
    axes, where = _split(ctx, stage, factors)
    mapping = dict(zip([a.var for a in stage.spatial], where, strict=True))
    mapping |= dict(zip([a.var for a in stage.reduce], [a.var for a in terms], strict=True))
    left, right = (ctx.values.expr(factor, mapping) for factor in factors)
    in_left, in_right = free_vars(left), free_vars(right)
    # Results lie in memory along their last axis, and so should columns.
    last = next((a for a in reversed(axes) if constant_int(a.extent) != 1), None)
    if last is not None and last.var in in_left and last.var not in in_right:
        left, right, in_left, in_right = right, left, in_right, in_left
    batch = [a for a in axes if a.var in in_left and a.var in in_right]
    columns = [a for a in axes if a.var in in_right and a.var not in in_left]
    rows = [a for a in axes if a.var not in in_right]
    return Contraction(batch, rows, columns, terms, left, right, where)


def _is_zero(init: Expr) -> bool:
    return isinstance(init, (tirx.IntImm, tirx.FloatImm)) and float(init.value) == 0.0


def _factors(value: Expr) -> tuple[Expr, Expr] | None:
    """The factors of a product; what a condition makes 0 is one whose first factor is then 0."""
    if isinstance(value, tirx.Mul):
        return value.a, value.b
    if is_call(value, "if_then_else") and isinstance(value.args[1], tirx.Mul):
        condition, product_, other = value.args
        if _is_zero(other):
            a, b = product_.a, product_.b
            if free_vars(condition) <= free_vars(a):
                return tirx.if_then_else(condition, a, tirx.const(0, str(a.ty.dtype))), b
    return None


def _split(ctx: Context, stage: Stage, factors: Sequence[Expr]) -> tuple[list[Axis], list[Expr]]:
    """Axes for the stage's, and its indices in them: channels in groups make two axes."""
    axes: list[Axis] = []
    where: list[Expr] = []
    for axis in stage.spatial:
        per_group = _group(axis, factors)
        if per_group is None:
            own = Axis(ctx.loops.var(axis.var.name, axis.extent), axis.extent)
            axes.append(own)
            where.append(own.var)
            continue
        groups = i64((constant_int(axis.extent) or 0) // per_group)
        outer = Axis(ctx.loops.var("group", groups), groups)
        inner = Axis(ctx.loops.var(axis.var.name, per_group), i64(per_group))
        axes += [outer, inner]
        where.append(outer.var * i64(per_group) + inner.var)
    return axes, where


def _group(axis: Axis, factors: Sequence[Expr]) -> int | None:
    """How many channels one group has, where both factors depend on the channel's group."""
    extent = constant_int(axis.extent)
    if extent is None or not all(axis.var in free_vars(f) for f in factors):
        return None
    for factor in factors:
        for node in walk([factor]):
            if isinstance(node, tirx.FloorDiv) and node.a.same_as(axis.var):
                size = constant_int(node.b)
                rest = substitute(factor, {axis.var: i64(0)})
                if size and 1 < size < extent and extent % size == 0 and rest is not None:
                    return size
    return None


def total(ctx: Context, axes: Sequence[Axis]) -> int | None:
    """The number of points of the axes if it is known."""
    return constant_int(product(ctx.loops, axes))
