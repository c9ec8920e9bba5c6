"""Attention: all scores of a few rows at a time, which stay in the cache until they are used."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Expr, TensorLoad
from tvm.tirx import Stmt

from rten_aot.targets.common.blocks import Matrices, copy_to_blocks
from rten_aot.targets.common.choices import Decisions
from rten_aot.targets.common.context import Context
from rten_aot.targets.common.epilogue import Epilogue
from rten_aot.targets.common.expr import Buffer, constant_int, free_vars, i64, substitute
from rten_aot.targets.common.loops import Loops, load, seq, store, tile, when
from rten_aot.targets.common.packing import columns_in_copy, lanes, rows
from rten_aot.targets.common.row_tiles import row_tile
from rten_aot.targets.common.sharing import share
from rten_aot.targets.common.stages import Reducer, Stage
from rten_aot.targets.common.tiles import Names, RowIndex, Shape, product_tile, store_columns

_SLOTS = 48
"""Turns of the parallel loop, each with memory for a tile's scores: what any few threads share."""


def schedule_attention(ctx: Context, stage: Stage) -> Stmt:
    """The rule for ``rten.attention``; ``stage`` are its weighted sums."""
    attention = _Attention(ctx, stage)
    body = attention.build()
    ctx.finish(attention.epilogue)
    ctx.decide(attention.decisions)
    return body


@dataclass(frozen=True)
class _Tile:
    """Some rows of one batch; all but ``count`` are expressions."""

    slot: Expr
    """Where the scores lie."""
    batch: Expr
    place: Sequence[Expr]
    """The indices along the axes of the batch."""
    first: Expr
    count: int

    def at(self, row: Expr, column: Expr) -> list[Expr]:
        """The indices of an element of a row, which is counted in the tile."""
        return [*self.place, self.first + row, column]


class _Attention:
    """The stages of one attention, its tiles, and the memory between them."""

    def __init__(self, ctx: Context, sums: Stage) -> None:
        self._ctx = ctx
        self._loops = ctx.loops
        self._name = Names(ctx.loops)
        self._sums = sums
        self._raised = _producer(ctx, sums.value.a.source)
        self._scores, self._greatest, self._total = (s for s in ctx.kernel.stages if s.is_part)
        self._most, self._sum = _reducer(self._greatest), _reducer(self._total)
        self._batch = RowIndex(ctx.loops, sums.spatial[:-2], self._name)
        self._rows, self._channels = (axis.extent for axis in sums.spatial[-2:])
        self._keys = sums.reduce[0].extent
        self._depth = self._scores.reduce[0].extent
        machine = ctx.machine
        self.decisions = Decisions.of(sums)
        least = columns_in_copy(machine, constant_int(self._keys))
        self._key_width = self.decisions.take("width", least, "least padding")
        self._channel_width = columns_in_copy(machine, constant_int(self._channels))
        most = min(rows(machine, w) for w in (self._key_width, self._channel_width))
        self._most_rows = self.decisions.take("rows", most, "as many as fit the registers")
        self._key_blocks = _ceil_div(ctx.loops, self._keys, self._key_width)
        self._slots = self._number_of_slots()
        padded = ctx.loops.simplify(self._key_blocks * i64(self._key_width))
        self._memory = ctx.scratch([self._slots, self._most_rows, padded], "float32", "scores")
        self._totals = ctx.storage(self._total)
        ctx.store(self._total, self._totals)
        self.epilogue = ctx.epilogue(sums)
        self._of_scores = Epilogue(
            ctx.kernel, self._scores, ctx.values, ctx.loops, lambda _stage: self._memory
        )
        """What is done to the scores; its only result is what the softmax is of."""

    def _number_of_slots(self) -> int:
        """As many as there are tiles at most; one if the work is too little for several threads."""
        extents = (*self._batch.extents, self._rows, self._keys, self._depth, self._channels)
        *batch, count, keys, depth, channels = (constant_int(e) for e in extents)
        known = [b for b in batch if b is not None]
        if len(known) < len(batch) or count is None or keys is None:
            return _SLOTS
        batches = math.prod(known)
        products = batches * count * keys * ((depth or 0) + (channels or 0))
        if products < self._ctx.machine.parallel_products:
            return 1
        return min(_SLOTS, batches * -(-count // self._most_rows))

    # -- loops ----------------------------------------------------------------------------------

    def build(self) -> Stmt:
        """Copies of keys and values; then tile after tile of rows, in parallel."""
        name, loops, slots = self._name, self._loops, i64(self._slots)
        self._packed_keys, pack_keys = self._copied(self._scores, self._key_width)
        self._packed_values, pack_values = self._copied(self._sums, self._channel_width)
        tiles = name("tiles", _ceil_div(loops, self._rows, self._most_rows))
        total = name("total", self._batch.count * tiles)
        self._blocks = name("key_blocks", self._key_blocks)
        before = name.take()

        def slot(number: Expr) -> Stmt:
            first = name("first", tirx.truncdiv(number * total, slots))
            end = tirx.truncdiv((number + i64(1)) * total, slots)
            count = name("count", end - first)
            defined = name.take()
            return seq(defined, loops.serial("task", count, lambda t: task(number, first + t)))

        def task(number: Expr, t: Expr) -> Stmt:
            batch = name("batch", tirx.truncdiv(t, tiles))
            place = [name("at", index) for index in self._batch.split(batch)]
            tile_number = name("tile", tirx.truncmod(t, tiles))
            defined = name.take()

            def rows_from(row: Expr, count: int) -> Stmt:
                first = name("row", row)
                return seq(name.take(), self._tile(_Tile(number, batch, place, first, count)))

            tile_loops = row_tile(loops, self._rows, self._most_rows, tile_number, rows_from)
            return seq(defined, tile_loops)

        return seq(pack_keys, pack_values, before, loops.parallel("slot", slots, slot))

    def _copied(self, product: Stage, width: int) -> tuple[Buffer, Stmt]:
        """The right factors of a product, in blocks of ``width`` columns."""
        k = product.reduce[0].var

        def element(batch: Expr, row: Expr, column: Expr) -> Expr:
            at = [*self._batch.split(batch), i64(0), column]
            return self._factor(product, product.value.b, at, row)

        probe = element(i64(0), k, i64(0))
        by_column = isinstance(probe, TensorLoad) and k in free_vars(probe.indices[-1])
        inner, columns = product.reduce[0].extent, product.spatial[-1].extent
        matrices = Matrices(self._batch.extents, inner, columns, element, by_column=by_column)
        return copy_to_blocks(self._ctx, matrices, width, self._name)

    def _factor(
        self, product: Stage, factor: TensorLoad, indices: Sequence[Expr], term: Expr
    ) -> Expr:
        where = dict(zip([a.var for a in product.spatial], indices, strict=True))
        where[product.reduce[0].var] = term
        return self._ctx.values.load(factor.source, [substitute(i, where) for i in factor.indices])

    def _shape(self, count: int, width: int) -> Shape:
        machine = self._ctx.machine
        return Shape(count, width, lanes(machine, width), machine.terms, machine.groups_loads)

    def _tile(self, at: _Tile) -> Stmt:
        """The result of some rows."""
        loops = self._loops
        channel_blocks = _ceil_div(loops, self._channels, self._channel_width)
        return seq(
            loops.serial("keys", self._blocks, lambda block: self._score(at, block)),
            loops.serial("r", at.count, lambda row: self._raise(at, row)),
            loops.serial("channels", channel_blocks, lambda block: self._weigh(at, block)),
        )

    def _score(self, at: _Tile, block: Expr) -> Stmt:
        """Scores for one block of keys, as the softmax takes them."""
        loops, width = self._loops, self._key_width
        shape = self._shape(at.count, width)
        start = loops.simplify(block * i64(width))

        def left(row: int, ks: Sequence[Expr]) -> Expr:
            return self._factor(self._scores, self._scores.value.a, at.at(i64(row), i64(0)), ks[0])

        def right(ks: Sequence[Expr], j: Expr) -> Expr:
            return load(self._packed_keys, [at.batch, block, ks[0], j])

        def finish(row: Expr, value: Callable[[Expr], Expr]) -> Stmt:
            def emit(j: Expr) -> list[Stmt]:
                values, _ = self._of_scores.results(value(j), at.at(row, start + j))
                binds, (result,) = share(values)
                return [*binds, store(self._memory, result, [at.slot, row, start + j])]

            def pad(j: Expr) -> Stmt:  # what changes neither the greatest nor the sum
                return store(self._memory, self._most.init, [at.slot, row, start + j])

            def columns(valid: Expr | int) -> Stmt:
                return seq(
                    store_columns(loops, shape, valid, emit),
                    loops.serial("c", i64(width) - valid, lambda j: pad(valid + j)),
                )

            return self._each_width(self._keys, width, start, columns)

        return product_tile(loops, shape, [("d", self._depth)], left, right, finish)

    def _raise(self, at: _Tile, row: Expr) -> Stmt:
        """The exponentials of a row of scores, and their sum."""
        loops, width = self._loops, self._key_width
        lane_count = lanes(self._ctx.machine, width)
        most, sums = (tile([width], "float32", name) for name in ("most", "sums"))
        scores = self._of_scores.stored[0].buffer

        def reduced(
            into: Buffer, reducer: Reducer, term: Callable[[Expr], tuple[list[Stmt], Expr]]
        ) -> list[Stmt]:
            """Combines the terms of all columns in ``into[0]``."""

            def each(body: Callable[[Expr], Stmt]) -> list[Stmt]:
                return loops.vectors("v", width, lane_count, body)

            def combine(column: Expr, v: Expr) -> Stmt:
                before, value = term(column)
                return seq(before, _combine(reducer, into, v, value))

            return [
                tirx.AllocBuffer(into),
                *each(lambda v: store(into, reducer.init, [v])),
                loops.serial(
                    "b",
                    self._blocks,
                    lambda b: seq(each(lambda v: combine(b * i64(width) + v, v))),
                ),
                *self._fold(reducer, into, lane_count),
            ]

        def score(column: Expr) -> tuple[list[Stmt], Expr]:
            return [], load(self._memory, [at.slot, row, column])

        def exponential(column: Expr) -> tuple[list[Stmt], Expr]:
            where = dict(
                zip([a.var for a in self._raised.spatial], at.at(row, column), strict=True)
            )
            known = {scores: score(column)[1], self._greatest.buffer: load(most, [0])}
            binds, (value,) = share([self._ctx.values.expr(self._raised.value, where, known)])
            raised = tirx.Var("raised", "float32")
            place = [at.slot, row, column]
            return [*binds, tirx.Bind(raised, value), store(self._memory, raised, place)], raised

        return seq(
            reduced(most, self._most, score),
            reduced(sums, self._sum, exponential),
            store(self._totals, load(sums, [0]), at.at(row, i64(0))),
        )

    def _fold(self, reducer: Reducer, values: Buffer, lane_count: int) -> list[Stmt]:
        """Combines all into the first one: vectors with the first vector, then halves of it."""
        steps = [(lane_count, d) for d in range(lane_count, self._key_width, lane_count)]
        width = lane_count
        while width > 1:
            width //= 2
            steps.append((width, width))

        def step(count: int, distance: int) -> Stmt:
            return self._loops.vector(
                "v",
                count,
                lambda v: _combine(reducer, values, v, load(values, [v + i64(distance)])),
            )

        return [step(*s) for s in steps]

    def _weigh(self, at: _Tile, block: Expr) -> Stmt:
        """The weighted sums for one block of channels."""
        loops, width = self._loops, self._channel_width
        shape = self._shape(at.count, width)
        start = loops.simplify(block * i64(width))

        def left(row: int, ks: Sequence[Expr]) -> Expr:
            return load(self._memory, [at.slot, row, ks[0]])

        def right(ks: Sequence[Expr], j: Expr) -> Expr:
            return load(self._packed_values, [at.batch, block, ks[0], j])

        def finish(row: Expr, value: Callable[[Expr], Expr]) -> Stmt:
            def emit(j: Expr) -> list[Stmt]:
                return self.epilogue.emit(value(j), at.at(row, loops.simplify(start + j)))

            return self._each_width(
                self._channels, width, start, lambda n: store_columns(loops, shape, n, emit)
            )

        return product_tile(loops, shape, [("k", self._keys)], left, right, finish)

    def _each_width(
        self, count: Expr, width: int, start: Expr, columns: Callable[[Expr | int], Stmt]
    ) -> Stmt:
        """``columns`` of a whole block, or of what the last one has."""
        left = self._loops.simplify(count - start)
        known = constant_int(count)
        rest = left if known is None else known % width
        if constant_int(rest) == 0:
            return columns(width)
        return when(self._loops.simplify(left >= i64(width)), columns(width), columns(rest))


def _producer(ctx: Context, buffer: Buffer) -> Stage:
    stage = ctx.kernel.producer(buffer)
    assert stage is not None, "attention is made of stages only"
    return stage


def _reducer(stage: Stage) -> Reducer:
    assert stage.reducer is not None, f"{stage.name} is a reduction"
    return stage.reducer


def _ceil_div(loops: Loops, count: Expr, by: int) -> Expr:
    return loops.simplify(tirx.floordiv(count + i64(by - 1), i64(by)))


def _combine(reducer: Reducer, into: Buffer, where: Expr, term: Expr) -> Stmt:
    binds, (value,) = share([reducer.combine(load(into, [where]), term)])
    return seq(binds, store(into, value, [where]))
