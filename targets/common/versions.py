"""Broadcasts that only the sizes of a run decide: one version of the loops without them.

The index ``Select(n == 1, 0, i)`` is even in no axis, so a vector of such loads would be a gather.
Where no broadcast takes place the index is ``i``, which is what nearly all runs need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad

from rten_aot.targets.common.expr import (
    Rewriter,
    constant_int,
    free_vars,
    i64,
    identity,
    loads,
    same,
    walk,
)
from rten_aot.targets.common.loops import Loops
from rten_aot.targets.common.stages import Axis

LONG_ROW = 64
"""Rows of so many elements are good vectors by themselves: longer ones gain nothing."""


@dataclass(frozen=True)
class Even:
    """Values without run-time broadcasts, right where ``condition`` (of sizes only) holds."""

    condition: Expr
    values: list[Expr]


def extents_of(
    prefix: Sequence[Expr], spatial: Sequence[Axis], axes: Sequence[Axis]
) -> dict[tirx.Var, Expr]:
    """Extents of ``axes``, and of the variables that index the first of the ``spatial`` ones."""
    outer = {p: a.extent for p, a in zip(prefix, spatial, strict=False) if isinstance(p, tirx.Var)}
    return outer | {a.var: a.extent for a in axes}


def even_version(
    values: Sequence[Expr],
    extents: Mapping[tirx.Var, Expr],
    inner: tirx.Var | None,
    loops: Loops,
) -> Even | None:
    """The values with all choices that sizes make in indices of loads decided for "false".

    ``extents`` are those of the axes; ``inner`` is the innermost one. None if there is no such
    choice, or none that stands in the way of vectors along ``inner``.
    """
    found = {
        identity(node): node
        for load in loads(*values)
        for node in walk(load.indices)
        if isinstance(node, tirx.Select) and _is_of_sizes(node.condition, loops)
    }
    if not found:
        return None
    length = constant_int(extents[inner]) if inner is not None else None
    if length is not None and length >= LONG_ROW and inner not in free_vars(*found.values()):
        return None
    terms: list[Expr] = []
    for node in found.values():
        term = _requirement(node, extents)
        if not any(same(term, t) for t in terms):
            terms.append(term)
    condition = terms[0]
    for term in terms[1:]:
        condition = tirx.And(condition, term)

    def replace(node: Expr) -> Expr | None:
        return rewrite(node.false_value) if identity(node) in found else None

    rewrite = Rewriter(replace)
    return Even(loops.simplify(condition), [rewrite(v) for v in values])


def _requirement(node: tirx.Select, extents: Mapping[tirx.Var, Expr]) -> Expr:
    """When the choice may be taken as false."""
    no = tirx.Not(node.condition)
    index = node.false_value
    if constant_int(node.true_value) == 0 and isinstance(index, tirx.Var) and index in extents:
        # Both are 0 along an axis of one element, as in runs with a batch of 1.
        return tirx.Or(no, extents[index] <= i64(1))
    return no


def _is_of_sizes(condition: Expr, loops: Loops) -> bool:
    nodes = list(walk([condition]))
    return not any(isinstance(n, (TensorLoad, Call)) for n in nodes) and all(
        loops.is_size(n) for n in nodes if isinstance(n, tirx.Var)
    )
