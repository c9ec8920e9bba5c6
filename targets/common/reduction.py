"""Loops for reduction stages, with what precedes and follows them element by element.

Where the terms lie side by side along a reduced axis, vectors of partial results run along it and
are combined in the end; otherwise vectors of results run along a kept axis, each with its own
accumulator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import Stmt

from rten_aot.targets.common.access import Nest
from rten_aot.targets.common.context import Context
from rten_aot.targets.common.epilogue import Epilogue
from rten_aot.targets.common.expr import Buffer, constant_int, element_bits, i64, loads
from rten_aot.targets.common.loops import load, seq, store, tile, when
from rten_aot.targets.common.nests import At, can_vectorise, cost, is_big, nested
from rten_aot.targets.common.sharing import share
from rten_aot.targets.common.stages import Axis, Reducer, Stage
from rten_aot.targets.common.stmts import TILE_BYTES, vectorised
from rten_aot.targets.common.versions import Even, even_version, extents_of


def schedule_reduction(ctx: Context, stage: Stage) -> Stmt:
    """Loops for the stage and its epilogue."""
    epilogue = ctx.epilogue(stage)
    body = reduction_nest(ctx, stage, epilogue, (), parallel=True)
    ctx.finish(epilogue)
    return body


def reduction_nest(
    ctx: Context, stage: Stage, epilogue: Epilogue, prefix: Sequence[Expr], *, parallel: bool
) -> Stmt:
    """The loops over all kept axes but the first ones, whose indices ``prefix`` gives."""
    general = _Reduction(ctx, stage, epilogue, prefix, parallel)
    even = general.even_version()
    if even is None:
        return general.run()
    plain = _Reduction(ctx, stage, epilogue, prefix, parallel, even=True)
    return when(even.condition, plain.run(), general.run(quiet=True))


class _Reduction:
    def __init__(
        self,
        ctx: Context,
        stage: Stage,
        epilogue: Epilogue,
        prefix: Sequence[Expr],
        parallel: bool,
        even: bool = False,
    ) -> None:
        assert stage.reducer is not None
        self._ctx = ctx
        self._loops = loops = ctx.loops
        self._dtype = stage.dtype
        self._acc = tirx.Var("acc", stage.dtype)

        def fresh(axis: Axis) -> Axis:
            return Axis(loops.var(axis.var.name, axis.extent), axis.extent)

        kept = [fresh(a) for a in stage.spatial[len(prefix) :]]
        reduced = [fresh(a) for a in stage.reduce]
        where = [*prefix, *(a.var for a in kept)]
        term = ctx.values.value(stage, where, [a.var for a in reduced])
        init = ctx.values.expr(
            stage.reducer.init, dict(zip([a.var for a in stage.spatial], where, strict=True))
        )
        results, places = epilogue.results(self._acc, where)
        values, axes = [term, init, *results], [*kept, *reduced]
        self._even = even_version(values, extents_of(prefix, stage.spatial, axes), None, loops)
        if even and self._even is not None:
            values = self._even.values
        self._nest = nest = Nest(axes, values, places, loops, keep_apart=[len(kept)])
        self._term_loads = len(loads(values[0]))  # the nest lists them first
        self._reducer: Reducer = stage.reducer
        kinds = [origin < len(kept) for origin in nest.origins]
        self._kept = [a for a, keep in zip(nest.axes, kinds, strict=True) if keep]
        self._reduced = [a for a, keep in zip(nest.axes, kinds, strict=True) if not keep]
        work = cost([nest.values[0]])
        self._cost = work
        self._quiet = not parallel
        self._parallel = parallel and is_big(ctx.machine, loops, nest.axes, work)

    def even_version(self) -> Even | None:
        """The values without broadcasts that sizes decide, if there are any."""
        return self._even

    def run(self, *, quiet: bool = False) -> Stmt:
        """The loops; a note says which, unless ``quiet``."""
        self._quiet |= quiet
        along = self._contiguous_reduced()
        self._note("along" if along is not None else "beside")
        if along is not None:
            others = [a for a in self._reduced if a is not along]
            return self._outer(self._kept, lambda at: self._across(at, others, along))
        inner = self._vector_axis()
        if inner is None:
            return self._outer(self._kept, lambda at: self._columns(at, None, i64(0), i64(1)))
        rest = [a for a in self._kept if a is not inner]
        width = self._column_width()
        block = constant_int(inner.extent)
        count = 1
        for axis in rest:
            count *= constant_int(axis.extent) or 64
        if self._parallel is not False and count < 16 and (block is None or block >= 2 * width):
            return self._parallel_columns(rest, inner, width)
        return self._outer(rest, lambda at: self._columns(at, inner, i64(0), inner.extent))

    def _note(self, way: str) -> None:
        if self._quiet:
            return

        def sizes(axes: Sequence[Axis]) -> str:
            return " x ".join(str(constant_int(a.extent) or "n") for a in axes) or "1"

        threads = ", parallel" if self._parallel is not False else ""
        self._ctx.note(
            f"reduction of {sizes(self._reduced)} to each of {sizes(self._kept)}, vectors {way} "
            f"the reduced axis{threads}"
        )

    def _outer(self, axes: Sequence[Axis], body: Callable[[At], Stmt]) -> Stmt:
        work = self._cost
        for axis in (a for a in self._nest.axes if a not in axes):
            work *= constant_int(axis.extent) or 64
        return nested(self._loops, axes, body, parallel=self._parallel, work=work)

    # --- which way ---------------------------------------------------------------------------

    def _votes(self, axis: Axis) -> int:
        """How many loads of the term are contiguous along the axis."""
        position = [a.var for a in self._nest.axes].index(axis.var)
        steps = [a.strides[position] for a in self._nest.loads[: self._term_loads]]
        return sum(s is not None and constant_int(s) == 1 for s in steps)

    def _contiguous_reduced(self) -> Axis | None:
        """The reduced axis to run vectors along, if that is the better way."""
        lanes = self._ctx.machine.lanes(self._dtype)
        best = max(self._reduced, key=self._votes, default=None)
        if best is None or self._votes(best) == 0:
            return None
        extent = constant_int(best.extent)
        if extent is not None and extent < lanes and self._vector_axis() is not None:
            return None
        if self._votes(best) < max((self._votes(a) for a in self._kept), default=0):
            return None
        return best

    def _vector_axis(self) -> Axis | None:
        """The kept axis to run vectors along."""
        best = max(reversed(self._kept), key=self._votes, default=None)
        if best is None:
            return None
        return best if (constant_int(best.extent) or 8) >= 4 else None

    # --- vectors of results ------------------------------------------------------------------

    def _column_width(self) -> int:
        lanes = self._ctx.machine.lanes(self._dtype)
        vectors = 8 if self._cost <= 4 else 4 if self._cost <= 16 else 2
        limit = TILE_BYTES // (element_bits(self._dtype) // 8)
        while lanes * vectors > limit:
            vectors //= 2
        return lanes * max(1, vectors)

    def _parallel_columns(self, rest: Sequence[Axis], inner: Axis, width: int) -> Stmt:
        """Few rows of results: the parallel loop runs over blocks of them."""
        count = self._loops.simplify(tirx.floordiv(inner.extent + i64(width - 1), i64(width)))
        block = Axis(self._loops.var("block", count), count)
        even = constant_int(self._loops.simplify(tirx.floormod(inner.extent, i64(width)))) == 0

        def body(at: At) -> Stmt:
            start = self._loops.simplify(at[block.var] * i64(width))
            whole = self._columns(at, inner, start, i64(width))
            if even:
                return whole
            left = self._loops.simplify(inner.extent - start)
            known = constant_int(inner.extent)
            last = left if known is None else i64(known % width)
            return when(left >= i64(width), whole, self._columns(at, inner, start, last))

        return self._outer([*rest, block], body)

    def _columns(self, at: At, inner: Axis | None, start: Expr, extent: Expr) -> Stmt:
        """Results ``start`` to ``start + extent`` along ``inner``."""
        parts: list[Stmt] = []
        width = self._column_width() if inner is not None else 1
        known = constant_int(extent)
        while True:
            if known is not None:
                while width > known and width > 1:
                    width //= 2
            count = self._loops.simplify(tirx.floordiv(extent, i64(width)))
            if constant_int(count) != 0:
                parts.append(self._column_loop(at, inner, start, count, width))
            done = self._loops.simplify(count * i64(width))
            start = self._loops.simplify(start + done)
            extent = self._loops.simplify(extent - done)
            known = constant_int(extent)
            if width == 1 or known == 0:
                return seq(parts)
            # With an unknown rest: single vectors, then single elements.
            lanes = self._ctx.machine.lanes(self._dtype)
            width = (lanes if width > lanes else 1) if known is None else width // 2

    def _column_loop(
        self, at: At, inner: Axis | None, start: Expr, count: Expr, width: int
    ) -> Stmt:
        def body(block: Expr) -> Stmt:
            base = self._loops.simplify(start + block * i64(width))
            return self._column_tile(at, inner, base, width)

        return self._loops.serial("c", count, body)

    def _column_tile(self, at: At, inner: Axis | None, base: Expr, width: int) -> Stmt:
        acc = tile([width], self._dtype)
        loops = self._loops

        def column(v: Expr) -> dict[tirx.Var, Expr]:
            return {**at, **({} if inner is None else {inner.var: loops.simplify(base + v)})}

        def lanes(build: Callable[[Expr], Sequence[Stmt]]) -> Stmt:
            if width == 1:
                return seq(build(i64(0)))
            var = loops.var("v", width)
            return vectorised(var, width, seq(build(var)))

        if width > 1 and not self._vectorises(column):
            return loops.serial(
                "e",
                width,
                lambda e: self._column_tile(at, inner, loops.simplify(base + e), 1),
            )

        def step(reduced: At) -> Stmt:
            return lanes(lambda v: self._accumulate(acc, v, {**column(v), **reduced}))

        return seq(
            tirx.AllocBuffer(acc),
            lanes(lambda v: self._initialise(acc, v, column(v))),
            nested(loops, self._reduced, step, parallel=False),
            lanes(lambda v: self._finish(load(acc, [v]), column(v))),
        )

    def _vectorises(self, column: Callable[[Expr], At]) -> bool:
        lane = self._loops.var("v", 8)
        values, _ = self._nest.at(column(lane))
        return can_vectorise(values, lane, self._loops)

    def _accumulate(self, acc: Buffer, where: Expr, at: At) -> list[Stmt]:
        values, _ = self._nest.at(at)
        return self._combine_into(acc, where, values[0])

    def _combine_into(self, acc: Buffer, where: Expr, term: Expr) -> list[Stmt]:
        combined = self._reducer.combine(load(acc, [where]), term)
        binds, (value,) = share([combined])
        return [*binds, store(acc, value, [where])]

    def _initialise(self, acc: Buffer, where: Expr, at: At) -> list[Stmt]:
        values, _ = self._nest.at(at)
        return [store(acc, values[1], [where])]

    def _finish(self, acc: Expr, at: At) -> list[Stmt]:
        values, places = self._nest.at({**at, self._acc: acc})
        binds, results = share(values[2:])
        return [
            *binds,
            *(
                store(buffer, value, place)
                for buffer, value, place in zip(self._nest.buffers, results, places, strict=True)
            ),
        ]

    # --- vectors of partial results ------------------------------------------------------------

    def _across(self, at: At, others: Sequence[Axis], along: Axis) -> Stmt:
        """One result; vectors of partial results run along axis ``along``."""
        loops = self._loops
        width = self._ctx.machine.lanes(self._dtype) * (4 if self._cost <= 16 else 2)
        extent = constant_int(along.extent)
        while extent is not None and width > 1 and width > extent:
            width //= 2
        lane = loops.var("v", 8)
        if not can_vectorise(self._nest.at({**at, along.var: lane})[0][:1], lane, loops):
            width = 1
        acc = tile([width], self._dtype)
        return seq(
            tirx.AllocBuffer(acc),
            loops.vector("v", width, lambda v: self._initialise(acc, v, at)),
            nested(
                loops,
                others,
                lambda outer: self._stretch(acc, {**at, **outer}, along, width),
                parallel=False,
            ),
            self._fold(acc, width),
            self._finish(load(acc, [0]), at),
        )

    def _stretch(self, acc: Buffer, at: At, along: Axis, width: int) -> Stmt:
        """Adds all terms along axis ``along`` to the partial results."""
        loops = self._loops
        one = self._ctx.machine.lanes(self._dtype)
        parts: list[Stmt] = []
        start: Expr = i64(0)
        rest: Expr = along.extent
        while True:
            blocks = loops.simplify(tirx.floordiv(rest, i64(width)))
            parts.append(self._terms(acc, at, along, start, blocks, width))
            done = loops.simplify(blocks * i64(width))
            start, rest = loops.simplify(start + done), loops.simplify(rest - done)
            known = constant_int(rest)
            if width == 1 or known == 0:
                return seq(parts)
            if known is None:  # single vectors, then single elements
                width = one if width > one else 1
            while known is not None and width > known:
                width //= 2

    def _terms(
        self, acc: Buffer, at: At, along: Axis, start: Expr, blocks: Expr, width: int
    ) -> Stmt:
        loops = self._loops

        def element(block: Expr, v: Expr) -> list[Stmt]:
            index = loops.simplify(start + block * i64(width) + v)
            return self._accumulate(acc, v, {**at, along.var: index})

        return loops.serial(
            "r", blocks, lambda b: loops.vector("v", width, lambda v: element(b, v))
        )

    def _fold(self, acc: Buffer, width: int) -> list[Stmt]:
        """Combines the partial results into the first one."""
        folds = []
        while width > 1:
            width //= 2

            def half(v: Expr, distance: int = width) -> list[Stmt]:
                return self._combine_into(acc, v, load(acc, [v + i64(distance)]))

            folds.append(self._loops.vector("v", width, half))
        return folds
