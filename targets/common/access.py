"""How the memory accesses of a loop nest depend on its axes: strides, and which axes are one.

Axes that all accesses run through as if they were one longer axis are collapsed, so that a
contiguous elementwise kernel is a single flat loop, whatever the rank of its tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import sym, tirx
from tvm.ir import Expr, TensorLoad

from rten_aot.targets.common.expr import (
    Buffer,
    Rewriter,
    children,
    constant_int,
    i64,
    identity,
    loads,
    substitute,
    walk,
)
from rten_aot.targets.common.loops import Loops
from rten_aot.targets.common.stages import Axis
from rten_aot.targets.common.values import specialise


@dataclass(frozen=True)
class Access:
    """One load or store."""

    buffer: Buffer
    offset: Expr
    """Distance from the start of the (compact) buffer, in elements."""
    strides: tuple[Expr | None, ...]
    """For each axis of the nest the step of ``offset`` (an expression without axes), or None if the
    offset does not grow evenly with the axis."""


def flat_offset(buffer: Buffer, indices: Sequence[Expr], loops: Loops) -> Expr:
    """The distance of ``buffer[indices]`` from the start, in elements."""
    offset: Expr = i64(0)
    for index, extent in zip(indices, buffer.ty.shape, strict=True):
        offset = offset * i64(extent) + index
    return loops.simplify(offset)


def access(buffer: Buffer, indices: Sequence[Expr], axes: Sequence[Axis], loops: Loops) -> Access:
    """The access ``buffer[indices]`` seen from the axes."""
    offset = flat_offset(buffer, indices, loops)
    free = {v for v in walk([offset]) if isinstance(v, tirx.Var)}
    strides: list[Expr | None] = []
    for axis in axes:
        if axis.var not in free:
            strides.append(i64(0))
            continue
        linear = sym.detect_linear_equation(offset, [axis.var])
        step = loops.simplify(linear[0]) if len(linear) == 2 else None
        if step is not None and _mentions(step, axes):
            step = None
        strides.append(step)
    return Access(buffer, offset, tuple(strides))


def _mentions(expr: Expr, axes: Sequence[Axis]) -> bool:
    names = {a.var for a in axes}
    return any(isinstance(e, tirx.Var) and e in names for e in walk([expr]))


@dataclass(frozen=True)
class Store:
    """``buffer[indices] = value``."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr


class Nest:
    """A set of values over common axes, with the axes collapsed as far as all accesses allow.

    After construction ``axes`` are the collapsed axes (``origins`` says which old axis each begins
    with), and ``values`` and ``places`` are written in them. ``loads`` and ``stores`` list the
    accesses.
    """

    def __init__(
        self,
        axes: Sequence[Axis],
        values: Sequence[Expr],
        stores: Sequence[tuple[Buffer, Sequence[Expr]]],
        loops: Loops,
        keep_apart: Sequence[int] = (),
    ) -> None:
        """``keep_apart`` are positions of axes that are not joined to the axis before them."""
        self._loops = loops
        found = loads(*values)
        accesses = [access(x.source, list(x.indices), axes, loops) for x in found]
        accesses += [access(buffer, where, axes, loops) for buffer, where in stores]
        bare = _bare_vars(values)
        self.origins: list[int] = []
        self.axes, mapping = self._collapse(axes, accesses, bare, keep_apart)
        count = len(found)
        remapped = [self._remap(a, axes, mapping) for a in accesses]
        self.loads, self.stores = remapped[:count], remapped[count:]
        by_load = {
            identity(x): _flat_load(x, substitute(a.offset, mapping))
            for x, a in zip(found, accesses[:count], strict=True)
            if _is_even(a, axes)
        }
        self._keep = found  # their addresses identify them below

        def replace(node: Expr) -> Expr | None:
            if isinstance(node, TensorLoad):
                return by_load.get(identity(node))
            return mapping.get(node) if isinstance(node, tirx.Var) else None

        rewrite = Rewriter(replace)
        self.values = [rewrite(v) for v in values]
        self.places = [
            flat_indices(buffer, substitute(a.offset, mapping))
            for (buffer, _), a in zip(stores, accesses[count:], strict=True)
        ]
        self.buffers = [buffer for buffer, _ in stores]

    def _collapse(
        self,
        axes: Sequence[Axis],
        accesses: Sequence[Access],
        bare: set[tirx.Var],
        keep_apart: Sequence[int],
    ) -> tuple[list[Axis], dict[tirx.Var, Expr]]:
        groups: list[list[int]] = []
        for position, axis in enumerate(axes):
            if constant_int(axis.extent) == 1:
                continue
            if groups and position not in keep_apart:
                last = groups[-1][-1]
                if self._joined(axes, last, position, accesses, bare):
                    groups[-1].append(position)
                    continue
            groups.append([position])
        mapping: dict[tirx.Var, Expr] = {a.var: i64(0) for a in axes}
        result = []
        for group in groups:
            inner = axes[group[-1]]
            self.origins.append(group[0])
            if len(group) == 1:
                mapping.pop(inner.var)
                result.append(inner)
                continue
            extent: Expr = i64(1)
            for position in group:
                extent = self._loops.simplify(extent * axes[position].extent)
            var = self._loops.var(inner.var.name, extent)
            mapping[inner.var] = var
            result.append(Axis(var, extent))
        return result, mapping

    def _joined(
        self,
        axes: Sequence[Axis],
        outer: int,
        inner: int,
        accesses: Sequence[Access],
        bare: set[tirx.Var],
    ) -> bool:
        if axes[outer].var in bare or axes[inner].var in bare:
            return False
        for a in accesses:
            far, near = a.strides[outer], a.strides[inner]
            if far is None or near is None:
                return False
            if constant_int(self._loops.simplify(far - near * axes[inner].extent)) != 0:
                return False
        return True

    def _remap(self, a: Access, axes: Sequence[Axis], mapping: Mapping[tirx.Var, Expr]) -> Access:
        kept = []
        for position, axis in enumerate(axes):
            image = mapping.get(axis.var, axis.var)
            if isinstance(image, tirx.Var):
                kept.append(a.strides[position])
        return Access(a.buffer, substitute(a.offset, mapping), tuple(kept))

    def at(self, mapping: Mapping[tirx.Var, Expr]) -> tuple[list[Expr], list[list[Expr]]]:
        """The values and the indices of their stores with axes replaced."""
        values = [specialise(v, mapping, self._loops) for v in self.values]
        places = [
            [self._loops.simplify(substitute(i, mapping)) for i in place] for place in self.places
        ]
        return values, places


def flat_indices(buffer: Buffer, offset: Expr) -> list[Expr]:
    """Indices that address the element ``offset`` from the start of the buffer.

    Only the last one is not 0, and it may exceed its dimension: addresses are computed from compact
    strides, and nothing else looks at the shape.
    """
    rank = len(buffer.ty.shape)
    return [] if rank == 0 else [*([i64(0)] * (rank - 1)), offset]


def _flat_load(load: TensorLoad, offset: Expr) -> Expr:
    return tirx.BufferLoad(load.source, flat_indices(load.source, offset))


def _is_even(a: Access, axes: Sequence[Axis]) -> bool:
    """Whether the offset grows evenly with every axis (nothing else may be replaced in it)."""
    return all(s is not None for s in a.strides)


def _bare_vars(values: Sequence[Expr]) -> set[tirx.Var]:
    """The variables that occur outside the indices of loads."""
    found: set[tirx.Var] = set()
    seen: set[int] = set()

    def visit(node: Expr) -> None:
        if identity(node) in seen:
            return
        seen.add(identity(node))
        if isinstance(node, tirx.Var):
            found.add(node)
        if isinstance(node, TensorLoad):
            return
        for child in children(node):
            visit(child)

    for value in values:
        visit(value)
    return found
