"""Direct convolution of channels-last images with packed weights, tiled over output pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import tirx
from tvm.ir import Expr, TensorLoad
from tvm.tirx import Stmt

from .context import Context
from .expr import Buffer, constant_int, i64, is_call, loads, same, substitute
from .loops import load, seq, store, when, zero
from .product import Block, Product, ProductLoops
from .stages import Stage
from .tiles import RowIndex, epilogue_is_flat


def schedule_conv2d(ctx: Context, stage: Stage) -> Stmt | None:
    """Rules for ``rten.conv_packed``: padding is copied first, then pixels are a product's rows."""
    if not isinstance(stage.value, tirx.Mul):
        return None
    data, weight = stage.value.a, stage.value.b
    if not isinstance(data, TensorLoad) or not isinstance(weight, TensorLoad):
        return None
    copy = bring_to_memory(ctx, data.source)
    convolution = _Convolution(ctx, stage, data, weight)
    loops = ProductLoops(ctx, convolution.product())
    body = loops.build()
    ctx.finish(convolution.epilogue)
    ctx.note(f"direct convolution, {loops.describe()}")
    return seq(copy, body)


class _Convolution:
    """The factors of a convolution, and where its sums go."""

    def __init__(self, ctx: Context, stage: Stage, data: TensorLoad, weight: TensorLoad) -> None:
        self.epilogue = ctx.epilogue(stage)
        self._ctx = ctx
        self._stage = stage
        self._data = data
        self._weight = weight.source
        shape = [constant_int(e) or 0 for e in weight.source.ty.shape]
        self._groups, _, self._kernel_h, self._kernel_w, self._channels, self._width = shape
        self._out = constant_int(stage.spatial[-1].extent) or 0
        self._rows = RowIndex(ctx.loops, stage.spatial[:-1])
        self._flat_out = epilogue_is_flat(ctx.loops, self._rows, self.epilogue, stage.dtype)
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
            width=self._width,
            reduce=reduce,
            row_bytes=4 * self._channels * min(steps, self._kernel_h * self._kernel_w),
            operands=self._operands,
            emit=self._emit,
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
            return self._ctx.values.load(self._weight, [at.group, at.block, *self._taps(ks), j])

        return before, left, right

    def _emit(self, at: Block, row: Expr, column: Expr, value: Expr) -> list[Stmt]:
        index = at.row + row
        pixel = self._rows.flat(index) if self._flat_out else self._rows.split(index)
        channel = at.group * i64(self._out // self._groups) + at.block * i64(self._width) + column
        return self.epilogue.emit(value, [*pixel, self._ctx.loops.simplify(channel)])


def bring_to_memory(ctx: Context, buffer: Buffer) -> Stmt:
    """Loops that compute an operand, by a fast copy if it is a padded image."""
    stage = ctx.kernel.producer(buffer)
    if stage is None or ctx.values.in_memory(buffer):
        return seq()
    source = padded_source(stage)
    if source is None:
        return ctx.materialise(buffer)
    before = ctx.materialise(source.source)
    padded = ctx.scratch([a.extent for a in stage.spatial], stage.dtype, stage.name)
    body = _copy_padded(ctx, stage, source, padded)
    ctx.values.put_in_memory(buffer, padded)
    ctx.done.add(buffer)
    return seq(before, body)


def padded_source(stage: Stage) -> TensorLoad | None:
    """The load of the image that ``stage`` pads with zeros: ``[n, h - top, w - left, c]``."""
    value = stage.value
    if stage.reducer is not None or not is_call(value, "if_then_else") or len(stage.spatial) != 4:
        return None
    inside, outside = value.args[1], value.args[2]
    if not isinstance(inside, TensorLoad) or not isinstance(outside, tirx.FloatImm):
        return None
    if float(outside.value) != 0.0 or loads(value.args[0]):
        return None
    batch, channel = inside.indices[0], inside.indices[3]
    first, last = stage.spatial[0], stage.spatial[3]
    # An axis of extent 1 may be written as the constant 0.
    for index, axis in ((batch, first), (channel, last)):
        if not index.same_as(axis.var) and constant_int(axis.extent) != 1:
            return None
    return inside


def pads_of(ctx: Context, stage: Stage, source: TensorLoad) -> tuple[Expr, Expr]:
    """Zero rows above the image and zero columns to its left."""
    top, left = (ctx.loops.simplify(stage.spatial[d].var - source.indices[d]) for d in (1, 2))
    return top, left


def _copy_padded(ctx: Context, stage: Stage, source: TensorLoad, padded: Buffer) -> Stmt:
    """Row by row: zeros, the image's row, zeros."""
    loops, values = ctx.loops, ctx.values
    batch, rows, columns, channels = (a.extent for a in stage.spatial)
    height, width = source.source.ty.shape[1:3]
    top, left = pads_of(ctx, stage, source)
    blank = zero(stage.dtype)
    lanes = ctx.machine.lanes(stage.dtype)

    def row(t: Expr) -> Stmt:
        n = _quotient(ctx, t, rows)
        y = _remainder(ctx, t, rows)

        def fill(first: Expr, count: Expr) -> Stmt:
            """Zeros for ``count`` pixels from ``first`` on."""
            return _elements(
                ctx,
                count * channels,
                lanes,
                lambda e: store(
                    padded, blank, [n, y, i64(0), loops.simplify(first * channels) + e]
                ),
            )

        def copied(e: Expr) -> Stmt:
            value = values.load(source.source, [n, y - top, i64(0), e])
            return store(padded, value, [n, y, i64(0), loops.simplify(left * channels) + e])

        after = loops.simplify(left + width)
        content = seq(
            fill(i64(0), left),
            _elements(ctx, width * channels, lanes, copied),
            fill(after, loops.simplify(columns - after)),
        )
        inside = tirx.all(y >= top, y < top + height)
        return when(loops.simplify(inside), content, fill(i64(0), columns))

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


def _quotient(ctx: Context, a: Expr, b: Expr) -> Expr:
    if constant_int(b) is None:
        return tirx.truncdiv(a, b)
    return ctx.loops.simplify(tirx.floordiv(a, b))


def _remainder(ctx: Context, a: Expr, b: Expr) -> Expr:
    if constant_int(b) is None:
        return tirx.truncmod(a, b)
    return ctx.loops.simplify(tirx.floormod(a, b))


__all__ = ["bring_to_memory", "load", "padded_source", "pads_of", "schedule_conv2d"]
