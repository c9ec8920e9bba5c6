"""Kernels that compute sizes from axes that are known at run time only: int64 vectors.

As in ``runtime_sizes``, what cannot be is a run-time failure.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te, tirx
from tvm.tirx import Buffer, Expr, IfThenElse, Stmt

from rten_aot.dialect.loops import Cell, flat_store, int64, product, seq
from rten_aot.dialect.registry import Pattern, define
from rten_aot.dialect.size_vectors import count_of, each_axis, fitting, size_vector, wide


class _Named:
    """Which of ``rank`` axes a tensor of axes names."""

    def __init__(self, rank: int, node: int) -> None:
        self._rank = rank
        self._node = node
        self._cell = Cell("named", size=max(rank, 1))

    def mark(self, axes: Buffer, count: int | Expr, *, once: bool) -> Stmt:
        """Note the axes; one that is named twice is a failure where only ``once`` will do."""

        def visit(axis: Expr, j: Expr) -> Stmt:
            new = tirx.EQ(self._cell.get(axis), int64(0))
            one = fitting(new, int64(1), self._node, wide(axes, j)) if once else int64(1)
            return self._cell.set(one, axis)

        return seq(
            self._cell.declare,
            *[self._cell.set(int64(0), a) for a in range(self._rank)],
            each_axis(axes, self._rank, self._node, visit, count),
        )

    def has(self, axis: int) -> Expr:
        """Whether the axis is among them."""
        return tirx.NE(self._cell.get(axis), int64(0))


@define("axes_sizes", pattern=Pattern.OPAQUE)
def axes_sizes(axes: te.Tensor, sizes: list[Expr], *, insert: bool, node: int) -> te.Tensor:
    """The shape ``sizes`` with axes of size 1 put in where ``axes`` says, or taken away there."""
    count = count_of(axes)
    rank = len(sizes) + count if insert else len(sizes)
    left = rank if insert else rank - count

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        named, position = _Named(rank, node), Cell("position")
        source = Cell("source", size=max(len(sizes), 1))

        def put(size: Expr) -> Stmt:
            room = position.get() < int64(left)
            store = flat_store(outs[0], position.get(), size)
            return seq(IfThenElse(room, store, None), position.set(position.get() + int64(1)))

        def removed(a: int) -> Stmt:
            one = fitting(tirx.EQ(sizes[a], int64(1)), int64(1), node, sizes[a])
            return IfThenElse(named.has(a), tirx.Evaluate(one), put(sizes[a]))

        def inserted(a: int) -> Stmt:
            new = flat_store(outs[0], a, int64(1))
            if not sizes:
                return new
            own = source.get(tirx.min(position.get(), int64(len(sizes) - 1)))
            take = seq(flat_store(outs[0], a, own), position.set(position.get() + int64(1)))
            return IfThenElse(named.has(a), new, take)

        return seq(
            position.declare,
            source.declare,
            position.set(int64(0)),
            *[source.set(size, k) for k, size in enumerate(sizes)],
            named.mark(ins[0], count, once=True),
            *[(inserted if insert else removed)(a) for a in range(rank)],
        )

    return size_vector(left, [axes], body, "axes_sizes")


@define("reduced_sizes", pattern=Pattern.OPAQUE)
def reduced_sizes(axes: te.Tensor, sizes: list[Expr], *, node: int) -> te.Tensor:
    """For each axis of a shape how many results a reduction has along it, then of how many terms.

    One of both is 1: ``axes`` are reduced, or all if there are none.
    """
    rank = len(sizes)

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        named, count = _Named(rank, node), product(axes.shape)
        stores = []
        for a, size in enumerate(sizes):
            reduced = tirx.Or(named.has(a), tirx.EQ(count, int64(0)))
            stores += [
                flat_store(outs[0], a, tirx.Select(reduced, int64(1), size)),
                flat_store(outs[0], rank + a, tirx.Select(reduced, size, int64(1))),
            ]
        return seq(named.mark(ins[0], count, once=False), *stores)

    return size_vector(2 * rank, [axes], body, "reduced_sizes")


@define("around_axis", pattern=Pattern.OPAQUE)
def around_axis(axis: te.Tensor, sizes: list[Expr], *, node: int) -> te.Tensor:
    """How many elements lie before an axis, along it, and behind it, in a tensor of shape sizes."""

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        def stores(at: Expr, _: Expr) -> Stmt:
            one = int64(1)
            places = [int64(a) for a in range(len(sizes))]
            pairs = list(zip(places, sizes, strict=True))
            before = product([tirx.Select(a < at, n, one) for a, n in pairs])
            along = product([tirx.Select(tirx.EQ(a, at), n, one) for a, n in pairs])
            behind = product([tirx.Select(a > at, n, one) for a, n in pairs])
            return seq(*[flat_store(outs[0], k, n) for k, n in enumerate((before, along, behind))])

        return each_axis(ins[0], len(sizes), node, stores, 1)

    return size_vector(3, [axis], body, "around_axis")


@define("pads_by_axis", pattern=Pattern.OPAQUE)
def pads_by_axis(pads: te.Tensor, axes: te.Tensor, *, rank: int, node: int) -> te.Tensor:
    """Pads before each of ``rank`` axes, then behind each, from those of the axes in ``axes``."""
    count = count_of(axes)

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        named = _Named(rank, node)

        def visit(axis: Expr, j: Expr) -> Stmt:
            return seq(
                flat_store(outs[0], axis, wide(ins[0], j)),
                flat_store(outs[0], int64(rank) + axis, wide(ins[0], int64(count) + j)),
            )

        return seq(
            *[flat_store(outs[0], k, int64(0)) for k in range(2 * rank)],
            named.mark(ins[1], count, once=True),
            each_axis(ins[1], rank, node, visit, count),
        )

    return size_vector(2 * rank, [pads, axes], body, "pads_by_axis")
