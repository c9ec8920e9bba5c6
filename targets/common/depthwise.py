"""Depthwise convolution of channels-last images: vectors of channels, tiles along the width.

Padding is not copied: taps outside of the image are left out. Rows of taps are tested once for a
tile; tiles near the left and right edges test every tap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Expr, TensorLoad
from tvm.tirx import Stmt

from rten_aot.targets.common.choices import Decisions
from rten_aot.targets.common.context import Context
from rten_aot.targets.common.conv2d import image_load, pads_before
from rten_aot.targets.common.expr import Buffer, constant_int, element_bits, i64
from rten_aot.targets.common.loops import Loops, load, seq, store, tile, zero
from rten_aot.targets.common.packing import channels, lanes, pixels
from rten_aot.targets.common.stages import Stage
from rten_aot.targets.common.tiles import Shape, branch, store_columns


@dataclass(frozen=True)
class _Axis:
    """Height or width: sizes of image and result, and how the window moves."""

    size: Expr
    result: Expr
    before: Expr
    """Zeros in front of the image."""
    kernel: int
    stride: int
    dilation: int

    def position(self, at: Expr, tap: int) -> Expr:
        """Where on the image a tap lies."""
        return at * i64(self.stride) + i64(tap * self.dilation) - self.before

    def inside(self) -> tuple[Expr, Expr]:
        """First result position all of whose taps lie on the image, and the one after the last."""
        stride = i64(self.stride)
        first = tirx.floordiv(self.before + stride - i64(1), stride)
        reach = i64((self.kernel - 1) * self.dilation)
        last = tirx.floordiv(self.size - i64(1) - reach + self.before, stride)
        first = tirx.min(first, self.result)
        return first, tirx.max(first, tirx.min(last + i64(1), self.result))


@dataclass(frozen=True)
class _Block:
    """Channels of a tile, from ``first`` on."""

    first: Expr
    shape: Shape


@dataclass(frozen=True)
class _Columns:
    """Pixels of a tile, side by side; but ``at_edge``, all their taps lie on the image."""

    first: Expr
    count: int
    at_edge: bool


def schedule_depthwise(ctx: Context, stage: Stage) -> Stmt | None:
    """The rule for ``rten.depthwise``."""
    if not isinstance(stage.value, tirx.Mul) or not isinstance(stage.value.b, TensorLoad):
        return None
    data = image_load(stage.value.a)
    if data is None:
        return None
    before = ctx.materialise(data.source)
    depthwise = _Depthwise(ctx, stage, data, stage.value.b)
    body = depthwise.build()
    ctx.finish(depthwise.epilogue)
    ctx.decide(depthwise.decisions)
    return seq(before, body)


class _Depthwise:
    """One depthwise convolution."""

    def __init__(self, ctx: Context, stage: Stage, data: TensorLoad, weight: TensorLoad) -> None:
        self._ctx = ctx
        self._loops = ctx.loops
        self._stage = stage
        self._weight = weight.source
        self._image = data.source
        pads = pads_before(ctx, stage, data)
        kernel = [constant_int(e) or 0 for e in weight.source.ty.shape[:2]]
        self._height, self._width = (
            _Axis(
                self._image.ty.shape[1 + d],
                stage.spatial[1 + d].extent,
                pads[d],
                kernel[d],
                stage.int_annotation(f"stride_{name}"),
                stage.int_annotation(f"dilation_{name}"),
            )
            for d, name in enumerate("hw")
        )
        self._count = constant_int(stage.spatial[3].extent) or 0
        self._multiple = stage.int_annotation("multiple")
        self.epilogue = ctx.epilogue(stage)
        self.decisions = Decisions.of(stage)
        self._channels, self._pixels = self._tile_size()
        self._lanes = lanes(ctx.machine, self._channels, stage.dtype)
        self._group = self.decisions.take(
            "group",
            self._channels_of_a_row(),
            "what they need for a tile stays in the level-1 cache",
        )

    def _tile_size(self) -> tuple[int, int]:
        """Channels and pixels of a tile."""
        machine, take = self._ctx.machine, self.decisions.take
        width = take("width", channels(machine, self._count), "two vectors if there are as many")
        most = take("rows", pixels(machine, width), "as many as fit the registers")
        known = constant_int(self._width.result)
        return width, most if known is None else max(1, min(most, known))

    def _channels_of_a_row(self) -> int:
        """How many channels are computed tile by tile along a row.

        Many, so that memory is read in long pieces; but the weights, and the columns that
        neighbouring tiles share, are to be found in the cache again.
        """
        height, width = self._height, self._width
        columns = (self._pixels - 1) * width.stride + (width.kernel - 1) * width.dilation + 1
        bytes_each = height.kernel * (width.kernel + columns) * element_bits(self._stage.dtype) // 8
        fitting = self._ctx.machine.l1_bytes // 2 // bytes_each
        return max(1, fitting // self._channels) * self._channels

    # -- loops ----------------------------------------------------------------------------------

    def build(self) -> Stmt:
        """The loops: rows in parallel, groups of channels, tiles of pixels, blocks of channels."""
        loops = self._loops
        batch, rows = self._stage.spatial[0].extent, self._height.result

        def row(t: Expr) -> Stmt:
            n, h = loops.var("n", batch), loops.var("h", rows)
            place = [
                tirx.Bind(n, tirx.truncdiv(t, rows)),
                tirx.Bind(h, tirx.truncmod(t, rows)),
            ]

            def group(first: Expr, count: int) -> Stmt:
                return self._columns(
                    lambda columns: self._blocks(
                        first, count, lambda block: self._tile(n, h, columns, block)
                    )
                )

            return seq(place, self._groups(group))

        total = loops.simplify(batch * rows)
        work = constant_int(loops.simplify(total * self._width.result))
        taps = self._height.kernel * self._width.kernel
        most = self._ctx.machine.parallel_products
        if work is not None and work * self._count * taps < most:
            return loops.serial("row", total, row)
        return loops.parallel("row", total, row)

    def _groups(self, body: Callable[[Expr, int], Stmt]) -> Stmt:
        """Loops over groups of channels, each given by its first one and their number."""
        whole, rest = divmod(self._count, self._group)
        last = body(i64(whole * self._group), rest) if rest else []
        return seq(
            self._loops.serial("group", whole, lambda g: body(g * i64(self._group), self._group)),
            last,
        )

    def _blocks(self, first: Expr, count: int, body: Callable[[_Block], Stmt]) -> Stmt:
        """Loops over channels; those that fill no block take shorter and shorter vectors."""
        loops, lanes = self._loops, self._lanes
        whole, rest = divmod(count, self._channels)

        def block(b: Expr) -> Stmt:
            return body(_Block(first + b * i64(self._channels), Shape(1, self._channels, lanes)))

        parts = [loops.serial("block", whole, block)]
        begin = count - rest
        while rest:
            while lanes > rest:
                lanes //= 2
            parts.append(body(_Block(first + i64(begin), Shape(1, lanes, lanes))))
            begin, rest = begin + lanes, rest - lanes
        return seq(*parts)

    def _columns(self, body: Callable[[_Columns], Stmt]) -> Stmt:
        """Loops over a row of the result."""
        loops = self._loops
        start, stop = (loops.simplify(e) for e in self._width.inside())
        last = self._width.result

        def inner(w: Expr, count: int) -> Stmt:
            return body(_Columns(loops.simplify(start + w), count, at_edge=False))

        return seq(
            loops.serial("w", start, lambda w: body(_Columns(w, 1, at_edge=True))),
            loops.blocked(
                "tile",
                loops.simplify(stop - start),
                self._pixels,
                lambda w: inner(w, self._pixels),
                lambda w, rest: self._shorter(w, rest, inner),
            ),
            loops.serial(
                "w",
                loops.simplify(last - stop),
                lambda w: body(_Columns(stop + w, 1, at_edge=True)),
            ),
        )

    def _shorter(self, w: Expr, rest: Expr, inner: Callable[[Expr, int], Stmt]) -> Stmt:
        """The pixels that fill no tile."""
        known = constant_int(rest)
        if known is not None:
            return inner(w, known)
        return self._loops.serial("r", rest, lambda r: inner(w + r, 1))

    # -- tiles ----------------------------------------------------------------------------------

    def _tile(self, n: Expr, h: Expr, columns: _Columns, block: _Block) -> Stmt:
        """Some pixels side by side; every column of the image is loaded once for all of them."""
        w, pixels, at_edge = columns.first, columns.count, columns.at_edge
        first, shape = block.first, block.shape
        loops, dtype = self._loops, self._stage.dtype
        acc = tile([pixels, shape.columns], dtype)

        def vectors(body: Callable[[Expr], Stmt]) -> list[Stmt]:
            return loops.vectors("v", shape.columns, shape.lanes, body)

        body: list[Stmt] = [tirx.AllocBuffer(acc)]
        for i in range(pixels):
            body += vectors(lambda j, i=i: store(acc, zero(dtype), [i, j]))
        for tap_y in range(self._height.kernel):
            y = self._height.position(h, tap_y)
            taps = self._row_of_taps(n, y, w, tap_y, first, acc, vectors, at_edge)
            body.append(_if(loops, [y >= i64(0), y < self._height.size], taps))
        done = tile([pixels, shape.columns], dtype, "done")
        body.append(tirx.AllocBuffer(done))
        for i in range(pixels):
            body += vectors(lambda j, i=i: store(done, load(acc, [i, j]), [i, j]))

        def finish(i: Expr) -> Stmt:
            return store_columns(
                loops,
                shape,
                shape.columns,
                lambda j: self.epilogue.emit(load(done, [i, j]), [n, h, w + i, first + j]),
            )

        body.append(loops.serial("p", pixels, finish))
        return seq(*body)

    def _row_of_taps(
        self,
        n: Expr,
        y: Expr,
        w: Expr,
        tap_y: int,
        first: Expr,
        acc: Buffer,
        vectors: Callable[[Callable[[Expr], Stmt]], list[Stmt]],
        at_edge: bool,
    ) -> Stmt:
        axis = self._width
        pixels = constant_int(acc.ty.shape[0]) or 1
        parts: list[Stmt] = []
        uses: dict[int, list[tuple[int, int]]] = {}
        for i in range(pixels):
            for tap_x in range(axis.kernel):
                uses.setdefault(i * axis.stride + tap_x * axis.dilation, []).append((i, tap_x))
        for column in sorted(uses):
            x = w * i64(axis.stride) + i64(column) - axis.before
            here: list[Stmt] = []
            for i, tap_x in uses[column]:
                here += vectors(
                    lambda j, i=i, tap_x=tap_x, x=x: store(
                        acc,
                        load(acc, [i, j])
                        + self._pixel(n, y, x, first, j)
                        * load(self._weight, [tap_y, tap_x, first + j]),
                        [i, j],
                    )
                )
            if at_edge:
                parts.append(_if(self._loops, [x >= i64(0), x < axis.size], seq(*here)))
            else:
                parts += here
        return seq(*parts)

    def _pixel(self, n: Expr, y: Expr, x: Expr, first: Expr, j: Expr) -> Expr:
        channel = first + j
        if self._multiple > 1:
            channel = tirx.floordiv(channel, i64(self._multiple))
        return self._ctx.values.load(self._image, [n, y, x, channel])


def _if(loops: Loops, conditions: Sequence[Expr], then: Stmt) -> Stmt:
    """``then`` if all conditions hold; what is known to hold is not tested."""
    open_ = [c for c in (loops.simplify(c) for c in conditions) if constant_int(c) != 1]
    return branch(tirx.all(*open_), then) if open_ else then
