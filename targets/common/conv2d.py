"""Direct convolution of channels-last images with packed weights, tiled over output pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import tirx
from tvm.ir import Expr, TensorLoad
from tvm.tirx import Stmt

from rten_aot.targets.common.choices import Decisions
from rten_aot.targets.common.context import Context
from rten_aot.targets.common.expr import (
    Buffer,
    constant_int,
    element_bits,
    i64,
    is_call,
    same,
    substitute,
)
from rten_aot.targets.common.halves import stored_load, widened
from rten_aot.targets.common.loops import seq, store, when, zero
from rten_aot.targets.common.packing import Blocks
from rten_aot.targets.common.product import Block, Product, ProductLoops
from rten_aot.targets.common.stages import Stage
from rten_aot.targets.common.tiles import Names, RowIndex, epilogue_is_flat


def schedule_conv2d(ctx: Context, stage: Stage) -> Stmt | None:
    """The rule for ``rten.conv_packed``: pad a copy, then take pixels for a product's rows."""
    if not isinstance(stage.value, tirx.Mul):
        return None
    data, weight = image_load(stage.value.a), stored_load(stage.value.b)
    if data is None or weight is None:
        return None
    before = ctx.materialise(data.source)
    copy = seq()
    if is_call(stage.value.a, "if_then_else"):
        data, copy = _padded(ctx, stage, data)
    name = Names(ctx.loops)
    decisions = Decisions.of(stage)
    convolution = _Convolution(ctx, stage, data, weight.source, name, decisions)
    product = convolution.product()
    decisions.know("algorithm", "direct")
    decisions.know("width", product.width)
    body = ProductLoops(ctx, product, name, decisions).build()
    ctx.finish(convolution.epilogue)
    ctx.decide(decisions)
    return seq(before, copy, body)


class _Convolution:
    """The factors of a convolution, and where its sums go."""

    def __init__(
        self,
        ctx: Context,
        stage: Stage,
        data: TensorLoad,
        weight: Buffer,
        name: Names,
        decisions: Decisions,
    ) -> None:
        self.epilogue = ctx.epilogue(stage)
        self._ctx = ctx
        self._stage = stage
        self._data = data
        self._weight = weight
        shape = [constant_int(e) or 0 for e in self._weight.ty.shape]
        self._groups, _, self._kernel_h, self._kernel_w, self._channels, packed = shape
        self._blocks = Blocks.of(ctx.machine, packed, decisions.record.width)
        self._out = constant_int(stage.spatial[-1].extent) or 0
        self._rows = RowIndex(ctx.loops, stage.spatial[:-1], name)
        self._flat_out = epilogue_is_flat(self._rows, self.epilogue, stage.dtype)
        self._flat_in = self._kernel_h == self._kernel_w == 1 and self._reads_flat()
        # Taps side by side and their channels lie next to each other in image and weight.
        self._merged = (
            self._groups == 1
            and stage.int_annotation("dilation_w") == 1
            and same(data.source.ty.shape[-1], i64(self._channels))
        )

    def _reads_flat(self) -> bool:
        probes = [tirx.Var(f"q{d}", "int64") for d in range(len(self._rows.extents))]
        channel = tirx.Var("c", "int64")
        indices = self._place(probes, [i64(0), i64(0), channel], i64(0))
        return self._rows.is_flat(probes, [(self._data.source, indices)])

    def product(self) -> Product:
        """The convolution as a product."""
        if self._merged:
            reduce = [("ry", self._kernel_h), ("rt", self._kernel_w * self._channels)]
        else:
            reduce = [("ry", self._kernel_h), ("rx", self._kernel_w), ("rc", self._channels)]
        if self._kernel_h == 1:
            reduce = reduce[1:]
        steps = self._stage.int_annotation("stride_h") * self._stage.int_annotation("stride_w")
        return Product(
            batches=1,
            rows=self._rows.count,
            groups=self._groups,
            columns=self._out // self._groups,
            width=self._blocks.tile,
            reduce=reduce,
            row_bytes=4 * self._channels * min(steps, self._kernel_h * self._kernel_w),
            operands=self._operands,
            emit=self._emit,
            is_packed=True,
            is_scattered=not self._flat_in,
            right_bytes=element_bits(str(self._weight.ty.dtype)) // 8,
        )

    def _taps(self, ks: Sequence[Expr]) -> list[Expr]:
        """The point of the sum as (ry, rx, rc)."""
        full = [i64(0), *ks] if self._kernel_h == 1 else list(ks)
        return [full[0], i64(0), full[1]] if self._merged else full

    def _place(self, pixel: Sequence[Expr], taps: Sequence[Expr], group: Expr) -> list[Expr]:
        """Where the data of an output pixel lies."""
        stage = self._stage
        channel = self._ctx.loops.simplify(group * i64(self._out // self._groups))
        where = dict(zip([a.var for a in stage.spatial], [*pixel, channel], strict=True))
        where.update(zip([a.var for a in stage.reduce], taps, strict=True))
        return [self._ctx.loops.simplify(substitute(i, where)) for i in self._data.indices]

    def _operands(
        self, at: Block
    ) -> tuple[
        list[Stmt],
        Callable[[int, Sequence[Expr]], Expr],
        Callable[[Sequence[Expr], Expr], Expr],
    ]:
        before: list[Stmt] = []
        pixels: list[list[Expr]] = []
        for i in range(at.rows):
            row = at.row + i64(i)
            if self._flat_in:
                pixels.append(self._rows.flat(row))
                continue
            pixel: list[Expr] = []
            for index in self._rows.split(row):
                if isinstance(index, tirx.IntImm):
                    pixel.append(index)
                    continue
                var = tirx.Var("p", "int64")
                before.append(tirx.Bind(var, index))
                pixel.append(var)
            pixels.append(pixel)

        def left(row: int, ks: Sequence[Expr]) -> Expr:
            place = self._place(pixels[row], self._taps(ks), at.group)
            return self._ctx.values.load(self._data.source, place)

        def right(ks: Sequence[Expr], j: Expr) -> Expr:
            block, column = self._blocks.place(at.block, j)
            place = [at.group, block, *self._taps(ks), column]
            return widened(self._ctx.values.load(self._weight, place))

        return before, left, right

    def _emit(self, at: Block, row: Expr, column: Expr, value: Expr) -> list[Stmt]:
        index = at.row + row
        pixel = self._rows.flat(index) if self._flat_out else self._rows.split(index)
        first = at.block * i64(self._blocks.tile)
        channel = at.group * i64(self._out // self._groups) + first + column
        return self.epilogue.emit(value, [*pixel, self._ctx.loops.simplify(channel)])


def image_load(value: Expr) -> TensorLoad | None:
    """The load of the image in a factor that may be zero on padding."""
    if is_call(value, "if_then_else"):
        value, outside = value.args[1], value.args[2]
        if not isinstance(outside, tirx.FloatImm) or float(outside.value) != 0.0:
            return None
    return value if isinstance(value, TensorLoad) and len(value.indices) == 4 else None


def pads_before(ctx: Context, stage: Stage, data: TensorLoad) -> tuple[Expr, Expr]:
    """Rows of padding above the image and columns to its left."""
    origin = {a.var: i64(0) for a in (*stage.spatial, *stage.reduce)}
    top, left = (ctx.loops.simplify(i64(0) - substitute(data.indices[d], origin)) for d in (1, 2))
    return top, left


def _padded(ctx: Context, stage: Stage, data: TensorLoad) -> tuple[TensorLoad, Stmt]:
    """The load that reads a padded copy of the image, and the loops that make the copy."""
    pads = pads_before(ctx, stage, data)
    last = {a.var: a.extent - i64(1) for a in (*stage.spatial, *stage.reduce)}
    shape = list(data.source.ty.shape)
    indices = list(data.indices)
    for d, pad in zip((1, 2), pads, strict=True):
        indices[d] = indices[d] + pad
        shape[d] = ctx.loops.simplify(substitute(indices[d], last) + i64(1))
    padded = ctx.scratch(shape, stage.dtype, "padded")
    ctx.values.put_in_memory(padded)
    copy = _copy(ctx, data.source, padded, *pads)
    return tirx.BufferLoad(padded, indices), copy


def _copy(ctx: Context, image: Buffer, padded: Buffer, top: Expr, left: Expr) -> Stmt:
    """Row by row: zeros, the image's row, zeros."""
    loops, values = ctx.loops, ctx.values
    dtype = str(padded.ty.dtype)
    batch, rows, columns, channels = padded.ty.shape
    height, width = image.ty.shape[1:3]
    # A stride may leave the end of a row unread.
    width = loops.simplify(tirx.min(width, columns - left))
    blank, lanes = zero(dtype), ctx.machine.lanes(dtype)

    def row(t: Expr) -> Stmt:
        n, y = loops.var("n", batch), loops.var("y", rows)

        def fill(first: Expr, count: Expr) -> Stmt:
            """Zeros for ``count`` pixels from ``first`` on."""
            start = loops.simplify(first * channels)
            return _elements(
                ctx,
                count * channels,
                lanes,
                lambda e: store(padded, blank, [n, y, i64(0), start + e]),
            )

        def copied(e: Expr) -> Stmt:
            value = values.load(image, [n, y - top, i64(0), e])
            return store(padded, value, [n, y, i64(0), loops.simplify(left * channels) + e])

        after = loops.simplify(left + width)
        content = seq(
            fill(i64(0), left),
            _elements(ctx, width * channels, lanes, copied),
            fill(after, loops.simplify(columns - after)),
        )
        inside = loops.simplify(tirx.all(y >= top, y < top + height))
        return seq(
            tirx.Bind(n, tirx.truncdiv(t, rows)),
            tirx.Bind(y, tirx.truncmod(t, rows)),
            when(inside, content, fill(i64(0), columns)),
        )

    return loops.parallel("row", loops.simplify(batch * rows), row)


def _elements(ctx: Context, count: Expr, lanes: int, body: Callable[[Expr], Stmt]) -> Stmt:
    """``body`` for consecutive elements, vectors first."""
    loops = ctx.loops
    return loops.blocked(
        "e",
        loops.simplify(count),
        lanes,
        lambda first: loops.vector("v", lanes, lambda v: body(first + v)),
        lambda first, rest: loops.serial("r", rest, lambda r: body(first + r)),
    )
