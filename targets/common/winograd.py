"""Winograd convolution: blocks of tiles are transformed, multiplied and transformed back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import tirx
from tvm.ir import Expr, TensorLoad
from tvm.tirx import Stmt

from rten_aot.targets.common.choices import Decisions
from rten_aot.targets.common.context import Context
from rten_aot.targets.common.expr import Buffer, Rewriter, constant_int, element_bits, i64, is_call
from rten_aot.targets.common.halves import stored_load, widened
from rten_aot.targets.common.loops import load, seq, store, tile
from rten_aot.targets.common.packing import Blocks
from rten_aot.targets.common.product import Block, Product, ProductLoops
from rten_aot.targets.common.sharing import share
from rten_aot.targets.common.stages import Stage
from rten_aot.targets.common.tiles import Names, RowIndex, branch
from rten_aot.targets.common.values import guards, specialise

_APART = 16
"""Elements between two taps' arrays, so that they do not all lie at the same place of the cache."""
_LARGE_BLOCK = 4 << 20
"""Bytes of a block of tiles at most, however large the weights are."""


def schedule_winograd(ctx: Context, stage: Stage) -> Stmt | None:
    """The rule for ``rten.conv_winograd``; ``stage`` are its products."""
    data = ctx.kernel.producer(stage.value.a.source)
    (result,) = ctx.kernel.consumers(stage.buffer)
    weight = stored_load(stage.value.b)
    assert data is not None
    assert weight is not None
    before = [ctx.materialise(buffer) for buffer in data.reads]
    convolution = _Winograd(ctx, data, stage, weight.source, result)
    body = convolution.build()
    ctx.done.update((data.buffer, stage.buffer))
    ctx.finish(convolution.epilogue)
    ctx.decide(convolution.decisions)
    return seq(before, body)


class _Winograd:
    """One convolution: its stages, and the memory between them."""

    def __init__(
        self, ctx: Context, data: Stage, products: Stage, weight: Buffer, result: Stage
    ) -> None:
        self.epilogue = ctx.epilogue(result)
        self._ctx = ctx
        self._loops = ctx.loops
        self._data = data
        self._products = products
        self._result = result
        self._weight = weight
        self._weight_bytes = element_bits(str(weight.ty.dtype)) // 8
        self._taps, _, self._channels, packed = (
            constant_int(e) or 0 for e in self._weight.ty.shape
        )
        self._out = constant_int(result.spatial[-1].extent) or 0
        self.decisions = Decisions.of(products)
        self.decisions.know("algorithm", "winograd")
        self._blocks = Blocks.of(ctx.machine, packed, self.decisions.record.width)
        self.decisions.know("width", self._blocks.tile)
        self._names = Names(ctx.loops)
        self._tiles = RowIndex(ctx.loops, products.spatial[1:4], self._names)
        self._before = self._names.take()
        self._in_block = self._tiles_in_a_block()
        self._transformed, self._sums = (
            ctx.scratch([self._taps, self._in_block * size + _APART], "float32", name)
            for size, name in ((self._channels, "tiles_mem"), (self._out, "products_mem"))
        )

    def _tiles_in_a_block(self) -> int:
        """As many as are transformed together; of a smaller number all."""
        most = self.decisions.take("block", *self._most_tiles())
        count = constant_int(self._tiles.count)
        if count is None:
            return most
        blocks = -(-count // most)
        return max(1, -(-count // max(1, blocks)))

    def _most_tiles(self) -> tuple[int, str]:
        """As many as fit the level-2 cache, and more where the weights do not fit it anyway.

        Each block reads all weights. The second value says why.
        """
        tile_bytes = self._taps * (self._channels + self._out) * 4
        weight_bytes = self._taps * self._channels * self._out * self._weight_bytes
        cache = self._ctx.machine.l2_bytes
        large = min(weight_bytes // 2, _LARGE_BLOCK)
        if large > cache:
            return max(16, large // tile_bytes), "each reads all weights, which are many"
        return max(16, cache // tile_bytes), "they fit the level-2 cache"

    # -- loops ----------------------------------------------------------------------------------

    def build(self) -> Stmt:
        """Block after block, each in three loops that run in parallel."""
        count, size = self._tiles.count, i64(self._in_block)
        blocks = self._loops.simplify(tirx.floordiv(count + size - i64(1), size))
        known = constant_int(count)

        def block(b: Expr) -> Stmt:
            if known is not None:  # the last one starts earlier, so that all have the same size
                first = self._names("first", tirx.min(b * size, i64(known - self._in_block)))
                tiles: Expr | int = self._in_block
            else:
                first = self._names("first", b * size)
                tiles = self._names("tiles", tirx.min(size, count - first))
            defined = self._names.take()
            return seq(
                defined,
                self._loops.parallel("tile", tiles, lambda t: self._transform(first, t)),
                self._multiply(tiles),
                self._loops.parallel("tile", tiles, lambda t: self._transform_back(first, t)),
            )

        return seq(self._before, self._loops.serial("block", blocks, block))

    def _place(self, number: Expr) -> tuple[list[Expr], list[Stmt]]:
        """Picture, row and column of a tile, and the statements that compute them."""
        place = [self._names("at", index) for index in self._tiles.split(number)]
        return place, self._names.take()

    def _vectors(self, count: int, body: Callable[[Expr, int], Stmt]) -> Stmt:
        """``body(first, lanes)`` for consecutive channels, whole vectors first."""
        lanes = self._ctx.machine.lanes("float32")
        whole, rest = divmod(count, lanes)
        main = self._loops.serial("c", whole, lambda c: body(c * i64(lanes), lanes))
        return seq(main, body(i64(whole * lanes), rest) if rest else None)

    def _transform(self, first: Expr, number: Expr) -> Stmt:
        """The data of a tile of a block."""
        place, defined = self._place(first + number)

        def values(channel: Expr) -> list[Expr]:
            at = [*place, channel]
            return [self._ctx.values.value(self._data, [i64(k), *at]) for k in range(self._taps)]

        def channels(*, inside: bool) -> Stmt:
            return self._vectors(
                self._channels,
                lambda c, n: self._loops.vector("v", n, lambda v: stores(c + v, inside)),
            )

        def stores(channel: Expr, inside: bool) -> Stmt:
            results = values(channel)
            if inside:
                results = [_unguarded(r) for r in results]
            binds, results = share(results)
            at = number * i64(self._channels) + channel
            return seq(binds, [store(self._transformed, r, [k, at]) for k, r in enumerate(results)])

        conditions = guards(values(i64(0)))
        if not conditions:
            return seq(defined, channels(inside=True))
        is_inside = self._loops.simplify(tirx.all(*conditions))
        return seq(defined, branch(is_inside, channels(inside=True), channels(inside=False)))

    def _multiply(self, tiles: Expr | int) -> Stmt:
        """Each tap's matrix of data with its matrix of weights."""
        channels, width = self._channels, self._blocks.tile

        def operands(
            at: Block,
        ) -> tuple[
            Sequence[Stmt],
            Callable[[int, Sequence[Expr]], Expr],
            Callable[[Sequence[Expr], Expr], Expr],
        ]:
            def left(row: int, ks: Sequence[Expr]) -> Expr:
                return load(
                    self._transformed, [at.group, (at.row + i64(row)) * i64(channels) + ks[0]]
                )

            def right(ks: Sequence[Expr], j: Expr) -> Expr:
                block, column = self._blocks.place(at.block, j)
                return widened(
                    self._ctx.values.load(self._weight, [at.group, block, ks[0], column])
                )

            return (), left, right

        def emit(at: Block, row: Expr, column: Expr, value: Expr) -> list[Stmt]:
            out = (at.row + row) * i64(self._out) + at.block * i64(width) + column
            return [store(self._sums, value, [at.group, out])]

        product = Product(
            batches=1,
            rows=tiles,
            groups=self._taps,
            columns=self._out,
            width=width,
            reduce=[("rc", channels)],
            row_bytes=4 * channels,
            operands=operands,
            emit=emit,
            is_packed=True,
            right_bytes=self._weight_bytes,
        )
        return ProductLoops(self._ctx, product, Names(self._loops), self.decisions).build()

    def _transform_back(self, first: Expr, number: Expr) -> Stmt:
        """The pixels that a tile gives, and what is computed from them."""
        place, defined = self._place(first + number)
        batch, row, column = place
        pixels = [(row * i64(2) + i64(p), column * i64(2) + i64(q)) for p in (0, 1) for q in (0, 1)]
        # Of even sizes there is no half tile.
        limits = [
            axis.extent if (constant_int(axis.extent) or 1) % 2 else None
            for axis in self._result.spatial[1:3]
        ]

        def channels(start: Expr, lanes: int) -> Stmt:
            done = tile([len(pixels), lanes], "float32", "done")

            def sums(v: Expr) -> Stmt:
                results = [self._pixel([batch, *pixel, start + v], number) for pixel in pixels]
                binds, results = share(results)
                return seq(binds, [store(done, r, [i, v]) for i, r in enumerate(results)])

            def stores(i: int) -> Stmt:
                pixel = pixels[i]
                emit = self._loops.vector(
                    "v",
                    lanes,
                    lambda v: seq(
                        self.epilogue.emit(load(done, [i, v]), [batch, *pixel, start + v])
                    ),
                )
                conditions = [
                    at < limit for at, limit in zip(pixel, limits, strict=True) if limit is not None
                ]
                return branch(tirx.all(*conditions), emit) if conditions else emit

            return seq(
                tirx.AllocBuffer(done),
                self._loops.vector("v", lanes, sums),
                [stores(i) for i in range(len(pixels))],
            )

        return seq(defined, self._vectors(self._out, channels))

    def _pixel(self, where: Sequence[Expr], number: Expr) -> Expr:
        """A pixel of the result, in terms of the products in memory."""
        axes = [a.var for a in self._result.spatial]
        at = number * i64(self._out) + where[-1]

        def resolve(read: TensorLoad, rewrite: Rewriter) -> Expr:
            return load(self._sums, [self._loops.simplify(rewrite(read.indices[0])), at])

        return specialise(
            self._result.value, dict(zip(axes, where, strict=True)), self._loops, resolve
        )


def _unguarded(expr: Expr) -> Expr:
    """The expression with all conditions of if_then_else taken for true."""

    def replace(node: Expr) -> Expr | None:
        return rewrite(node.args[1]) if is_call(node, "if_then_else") else None

    rewrite = Rewriter(replace)
    return rewrite(expr)
