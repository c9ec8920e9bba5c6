"""Loops for spatial stages: every element of the results is an expression of its indices.

Axes are collapsed, the outer ones shared out to threads, the innermost one cut into vectors. A
result whose operands run along another axis (a transposition) is computed in small square blocks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import ForKind, Stmt

from rten_aot.targets.common.access import Nest
from rten_aot.targets.common.context import Context
from rten_aot.targets.common.expr import Buffer, constant_int, i64
from rten_aot.targets.common.loops import seq, store, when
from rten_aot.targets.common.nests import (
    CHUNK,
    At,
    can_vectorise,
    cost,
    is_big,
    nested,
    turning_points,
)
from rten_aot.targets.common.sharing import share, share_around
from rten_aot.targets.common.squares import square, square_side
from rten_aot.targets.common.stages import Axis, Stage
from rten_aot.targets.common.stmts import vectorised
from rten_aot.targets.common.values import guards
from rten_aot.targets.common.versions import even_version, extents_of

BLOCK = 16
"""Side of the blocks of a transposition: one cache line of float32."""
SQUARES = 4
"""Squares in a band of a transposition."""
MOST_SEGMENTS = 33


def schedule_spatial(ctx: Context, stages: Sequence[Stage]) -> Stmt:
    """Loops that compute the stages, all of the same shape, into memory; notes them as done."""
    storages = [ctx.storage(s) for s in stages]
    body = spatial_nest(ctx, stages, storages, (), parallel=True)
    for stage, storage in zip(stages, storages, strict=True):
        ctx.store(stage, storage)
    return body


def spatial_nest(
    ctx: Context,
    stages: Sequence[Stage],
    storages: Sequence[Buffer],
    prefix: Sequence[Expr],
    *,
    parallel: bool,
) -> Stmt:
    """The loops over all axes but the first ones, whose indices ``prefix`` gives."""
    first = stages[0]
    axes = [
        Axis(ctx.loops.var(a.var.name, a.extent), a.extent) for a in first.spatial[len(prefix) :]
    ]
    where = [*prefix, *(a.var for a in axes)]
    values = step_values(ctx, stages, where)
    places = [(b, where) for b in storages]

    def loops(values: Sequence[Expr], *, quiet: bool) -> Stmt:
        return _Emitter(ctx, Nest(axes, values, places, ctx.loops), parallel, quiet).run()

    extents = extents_of(prefix, first.spatial, axes)
    inner = next((a.var for a in reversed(axes) if constant_int(a.extent) != 1), None)
    even = even_version(values, extents, inner, ctx.loops)
    if even is None:
        return loops(values, quiet=not parallel)
    plain = loops(even.values, quiet=not parallel)
    return when(even.condition, plain, loops(values, quiet=True))


def step_values(ctx: Context, stages: Sequence[Stage], where: Sequence[Expr]) -> list[Expr]:
    """What the stages store at ``where``; they use each other's values, not what they stored."""
    with ctx.values.computed([s.buffer for s in stages]):
        return [ctx.values.value(s, where) for s in stages]


class _Emitter:
    def __init__(self, ctx: Context, nest: Nest, parallel: bool, quiet: bool) -> None:
        self._ctx = ctx
        self._loops = ctx.loops
        self._nest = nest
        self._cost = cost(nest.values)
        self._guards = guards(nest.values)
        self._quiet = quiet
        self._parallel = parallel and is_big(ctx.machine, ctx.loops, nest.axes, self._cost)

    def run(self) -> Stmt:
        axes = self._nest.axes
        if not axes:
            return self._element()
        inner = axes[-1]
        other = self._transposed()
        self._note("transposed in blocks" if other is not None else "elementwise")
        if other is not None:
            return self._transposition(other)
        extent = constant_int(inner.extent)
        rows = [constant_int(a.extent) for a in axes[:-1]]
        few_rows = all(r is not None for r in rows) and math.prod(r or 0 for r in rows) < 16
        if (
            self._parallel is not False
            and few_rows
            and (extent is None or extent * self._cost > 2 * CHUNK)
        ):
            pieces = self._segments(i64(0), inner.extent)
            return seq([self._chunked(start, length) for start, length in pieces])
        return self._outer(axes[:-1], lambda at: self._row(at, i64(0), inner.extent))

    def _note(self, way: str) -> None:
        if self._quiet:
            return
        sizes = " x ".join(str(constant_int(a.extent) or "n") for a in self._nest.axes)
        threads = ", parallel" if self._parallel is not False else ""
        self._ctx.note(f"{way}: {sizes} elements, vectors of {self._width()}{threads}")

    # --- outer loops -------------------------------------------------------------------------

    def _outer(self, outer: Sequence[Axis], body: Callable[[At], Stmt]) -> Stmt:
        work = self._cost * (constant_int(self._nest.axes[-1].extent) or 64)
        return nested(self._loops, outer, body, parallel=self._parallel, work=work)

    def _chunked(self, first: Expr, extent: Expr) -> Stmt:
        """Few long rows: the parallel loop runs over pieces of rows."""
        step = self._width()
        piece = max(1, CHUNK // (self._cost * step)) * step
        count = self._loops.simplify(tirx.floordiv(extent + i64(piece - 1), i64(piece)))
        chunk = Axis(self._loops.var("chunk", count), count)
        even = self._loops.simplify(tirx.floormod(extent, i64(piece)))
        vectors = constant_int(extent) is not None or self._vectorises({}, i64(0), extent)

        def body(at: At) -> Stmt:
            done = self._loops.simplify(at[chunk.var] * i64(piece))
            rest = self._loops.simplify(extent - done)
            start = self._loops.simplify(first + done)
            if not vectors:
                return self._row(at, start, self._loops.simplify(tirx.Min(rest, i64(piece))))
            whole = self._row(at, start, i64(piece))
            if constant_int(even) == 0:
                return whole
            return when(rest >= i64(piece), whole, self._row(at, start, rest))

        return self._outer([*self._nest.axes[:-1], chunk], body)

    # --- transpositions ----------------------------------------------------------------------

    def _transposed(self) -> int | None:
        """The axis along which most loads are contiguous, if that is not the innermost one."""
        axes = self._nest.axes
        last = len(axes) - 1
        votes = [0] * len(axes)
        for a in self._nest.loads:
            steps = [None if s is None else constant_int(s) for s in a.strides]
            if steps[last] in (0, 1):
                votes[last] += steps[last] or 0
                continue
            for position in range(last):
                votes[position] += steps[position] == 1
        best = max(range(len(axes)), key=lambda p: votes[p])
        extents = (constant_int(axes[best].extent), constant_int(axes[last].extent))
        if votes[best] <= votes[last] or any(e is not None and e < 4 for e in extents):
            return None
        return best

    def _transposition(self, other: int) -> Stmt:
        """Squares that overlap at the ends, where the axes are long enough for one."""
        axes = self._nest.axes
        side = square_side(self._nest, other, self._ctx.machine.lanes("float32"))
        if side is None:
            return self._blocks(other)
        fits = self._loops.simplify(
            tirx.all(axes[other].extent >= i64(side), axes[-1].extent >= i64(side))
        )
        return when(fits, self._squares(other, side), self._blocks(other))

    def _squares(self, other: int, side: int) -> Stmt:
        axes = self._nest.axes
        along, inner = axes[other], axes[-1]
        band = side * self._squares_in_a_band(other)

        def count(extent: Expr, length: int) -> Expr:
            return self._loops.simplify(tirx.floordiv(extent + i64(length - 1), i64(length)))

        def start(first: Expr, number: Expr, axis: Axis) -> Expr:
            return self._loops.simplify(
                tirx.min(first + number * i64(side), axis.extent - i64(side))
            )

        bands = Axis(self._loops.var("band", count(along.extent, band)), count(along.extent, band))
        outer = [a for i, a in enumerate(axes[:-1]) if i != other]

        def body(at: At) -> Stmt:
            first = self._loops.simplify(at[bands.var] * i64(band))
            length = self._loops.simplify(tirx.min(along.extent - first, i64(band)))

            def squares(i: Expr) -> Stmt:
                return self._loops.serial(
                    "square",
                    count(length, side),
                    lambda j: square(
                        self._nest, at, along, start(first, j, along), start(i64(0), i, inner), side
                    ),
                )

            return self._loops.serial("row", count(inner.extent, side), squares)

        return self._outer([*outer, bands], body)

    def _squares_in_a_band(self, other: int) -> int:
        """Where the source is the one with the long rows, several squares along them at once.

        So its pages are met less often; else those of the target are.
        """
        (source,), (target,) = self._nest.loads, self._nest.stores
        strides = (source.strides[-1], target.strides[other])
        rows, columns = (None if s is None else constant_int(s) for s in strides)
        return SQUARES if rows is not None and columns is not None and rows > columns else 1

    def _blocks(self, other: int) -> Stmt:
        """Square blocks over axis ``other`` and the innermost one."""
        axes = self._nest.axes
        along, inner = axes[other], axes[-1]
        count = self._loops.simplify(tirx.floordiv(along.extent + i64(BLOCK - 1), i64(BLOCK)))
        blocks = Axis(self._loops.var("block", count), count)
        outer = [a for i, a in enumerate(axes[:-1]) if i != other]

        def body(at: At) -> Stmt:
            base = self._loops.simplify(at[blocks.var] * i64(BLOCK))
            height = self._loops.simplify(tirx.Min(i64(BLOCK), along.extent - base))

            def band(start: Expr, width: Expr) -> Stmt:
                return self._loops.serial(
                    along.var.name,
                    height,
                    lambda r: self._row(
                        {**at, along.var: self._loops.simplify(base + r)}, start, width
                    ),
                )

            return self._loops.blocked(
                "w", inner.extent, BLOCK, lambda start: band(start, i64(BLOCK)), band
            )

        return self._outer([*outer, blocks], body)

    # --- rows --------------------------------------------------------------------------------

    def _width(self) -> int:
        """Elements computed together: some vectors of the widest type, fewer for long formulas."""
        types = {str(a.buffer.ty.dtype) for a in [*self._nest.loads, *self._nest.stores]}
        lanes = min(self._ctx.machine.lanes(t) for t in types)
        return lanes * (4 if self._cost <= 12 else 2)

    def _segments(self, start: Expr, extent: Expr) -> list[tuple[Expr, Expr]]:
        """The range cut where a guard changes its value, so that each piece can do without it."""
        inner = self._nest.axes[-1].var
        first, length = constant_int(start), constant_int(extent)
        if first is None or length is None:
            return [(start, extent)]
        cuts = {first, first + length}
        for guard in self._guards:
            cuts |= {c for c in turning_points(guard, inner) if first < c < first + length}
        if len(cuts) > MOST_SEGMENTS:
            return [(start, extent)]
        points = sorted(cuts)
        return [(i64(a), i64(b - a)) for a, b in itertools.pairwise(points)]

    def _row(self, at: At, start: Expr, extent: Expr) -> Stmt:
        """Elements ``start`` to ``start + extent`` of the innermost axis."""
        return seq([self._piece(at, s, e) for s, e in self._segments(start, extent)])

    def _piece(self, at: At, start: Expr, extent: Expr) -> Stmt:
        known = constant_int(extent)
        if not self._vectorises(at, start, extent):
            return self._loop(at, start, extent, 1)
        width = self._width()
        if known is not None and known < width:
            return self._rest(at, start, extent, width)
        count = self._loops.simplify(tirx.floordiv(extent, i64(width)))
        done = self._loops.simplify(count * i64(width))
        rest = self._loops.simplify(extent - done)
        main = self._loop(at, start, count, width)
        if constant_int(rest) == 0:
            return main
        return seq(main, self._rest(at, self._loops.simplify(start + done), rest, width))

    def _vectorises(self, at: At, start: Expr, extent: Expr) -> bool:
        lane = self._loops.var("v", extent)
        inner = self._nest.axes[-1].var
        values, _ = self._nest.at({**at, inner: self._loops.simplify(start + lane)})
        return can_vectorise(values, lane, self._loops)

    def _rest(self, at: At, start: Expr, extent: Expr, width: int) -> Stmt:
        """Fewer than ``width`` elements."""
        known = constant_int(extent)
        if known is None:
            lanes = max(1, width // 4)
            count = self._loops.simplify(tirx.floordiv(extent, i64(lanes)))
            done = self._loops.simplify(count * i64(lanes))
            last = self._loops.simplify(extent - done)
            return seq(
                self._loop(at, start, count, lanes),
                self._loop(at, self._loops.simplify(start + done), last, 1),
            )
        parts = []
        while known:
            while width > known:
                width //= 2
            parts.append(self._loop(at, start, i64(1), width))
            start = self._loops.simplify(start + i64(width))
            known -= width
        return seq(*parts)

    def _loop(self, at: At, start: Expr, count: Expr, width: int) -> Stmt:
        """``count`` times ``width`` elements from ``start``."""
        known = constant_int(count)
        if known == 0:
            return seq()
        block = i64(0) if known == 1 else self._loops.var("b", count)
        lane = i64(0) if width == 1 else self._loops.var("v", width)
        index = self._loops.simplify(start + block * i64(width) + lane)
        values, places = self._nest.at({**at, self._nest.axes[-1].var: index})
        variables = [v for v in (block, lane) if isinstance(v, tirx.Var)]
        hoisted, binds, results = share_around(values, variables or None)
        body = seq(binds, self._stores(results, places))
        if width > 1:
            body = vectorised(lane, width, body)
        if known == 1:
            return seq(hoisted, body)
        loop = tirx.For(block, i64(0), count, ForKind.SERIAL, body)
        if hoisted and known is None:
            return when(count > i64(0), seq(hoisted, loop))
        return seq(hoisted, loop)

    def _element(self) -> Stmt:
        values, places = self._nest.at({})
        binds, results = share(values)
        return seq(binds, self._stores(results, places))

    def _stores(self, values: Sequence[Expr], places: Sequence[Sequence[Expr]]) -> list[Stmt]:
        return [
            store(buffer, value, place)
            for buffer, value, place in zip(self._nest.buffers, values, places, strict=True)
        ]
