"""Matrix products, convolutions among them: tiles in shared memory, sums in registers.

A block of threads computes a tile of the result. Step by step it brings tiles of both factors to
shared memory, the next ones while it works on the last ones; a thread keeps 32 sums or more, for
which it loads 12 or 16 elements a term, four at a time. Where there are few tiles several blocks
share the terms of each, and a second kernel adds up what they have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import tirx
from tvm.ir import Expr

from rten_aot.targets.common.context import Context
from rten_aot.targets.common.epilogue import Epilogue
from rten_aot.targets.common.expr import Buffer, constant_int, i64
from rten_aot.targets.common.nests import product as count_of
from rten_aot.targets.common.stages import Axis, Stage
from rten_aot.targets.cuda.contraction import Contraction, contraction, total
from rten_aot.targets.cuda.factor import Factor, name_axes
from rten_aot.targets.cuda.kernel import Launch, grid, indices, launch
from rten_aot.targets.cuda.lanes import LANES, VECTORS, is_wide_store, wide_store, wide_values
from rten_aot.targets.cuda.target import Gpu, Precision
from rten_aot.targets.cuda.tensor_cores import WarpTiles
from rten_aot.targets.cuda.text import Writer
from rten_aot.targets.cuda.tiles import (
    Tile,
    ceil_div,
    choose_tile,
    count_parts,
    refusal,
)
from rten_aot.targets.cuda.words import c_type

_FINISH_THREADS = 256
_RESIDENT = 512
"""Threads that a multiprocessor is to have room for, so that each may use 128 registers."""


def matrix_product(ctx: Context, stage: Stage) -> tuple[Launch, ...] | None:
    """The kernels of a stage that is a sum of products; None if other rules do better."""
    if stage.dtype not in ("float32", "int32"):
        return None
    found = contraction(ctx, stage)
    if found is None:
        return None
    refused = refusal(ctx, found)
    if refused is not None:
        ctx.note(f"no tiles: {refused}")
        return None
    epilogue = ctx.epilogue(stage)
    precision = _precision(ctx, stage.dtype)
    tile = choose_tile(ctx, found, precision)
    parts = count_parts(ctx, found, tile)
    ctx.note(
        f"matrix product of {_sizes(ctx, found)}, tiles of {tile.rows}x{tile.columns}"
        + (f", terms in {parts} parts" if parts > 1 else "")
        + (f", {precision} in tensor cores" if precision != "fp32" else "")
    )
    made = _Product(ctx, found, epilogue, stage.dtype, tile, parts).launches()
    ctx.finish(epilogue)
    return made


def _sizes(ctx: Context, c: Contraction) -> str:
    """Rows, columns and terms of each product, and how many there are."""
    batch, *sizes = (total(ctx, axes) for axes in (c.batch, c.rows, c.columns, c.terms))
    text = "x".join("?" if n is None else str(n) for n in sizes)
    return text if batch == 1 else f"{'?' if batch is None else batch} times {text}"


def _precision(ctx: Context, dtype: str) -> Precision:
    """That of the factors."""
    machine = ctx.machine
    return machine.precision if isinstance(machine, Gpu) and dtype == "float32" else "fp32"


class _Product:
    def __init__(
        self,
        ctx: Context,
        c: Contraction,
        epilogue: Epilogue,
        dtype: str,
        tile: Tile,
        parts: int,
    ) -> None:
        self._ctx = ctx
        self._c = c
        self._epilogue = epilogue
        self._dtype = dtype
        self._tile = tile
        self._parts = parts
        self._rows = count_of(ctx.loops, c.rows)
        self._columns = count_of(ctx.loops, c.columns)
        self._batch = count_of(ctx.loops, c.batch)
        precision = _precision(ctx, dtype)
        self._warps = None
        if precision != "fp32":
            self._warps = WarpTiles(tile.rows, tile.columns, tile.depth, precision)
        self._partial: Buffer | None = None
        if parts > 1:
            shape = [parts, self._batch, self._rows, self._columns]
            self._partial = ctx.scratch(shape, dtype, "partial")

    def launches(self) -> tuple[Launch, ...]:
        first = self._main()
        return (first,) if self._partial is None else (first, self._finish(self._partial))

    # --- the product ---------------------------------------------------------------------------

    def _main(self) -> Launch:
        ctx, c, tile = self._ctx, self._c, self._tile
        w = self._writer = Writer(ctx.loops, indices(ctx.kernel))
        blocks = self._place_block()
        left = Factor(w, "row", c.left, c.batch, c.rows, c.terms)
        right = Factor(w, "col", c.right, c.batch, c.columns, c.terms)
        padding = 4 if self._warps is None else 8
        left.declare(tile.rows, tile.depth, tile.threads, padding)
        right.declare(tile.columns, tile.depth, tile.threads, padding)
        self._sums()
        self._loop(left, right)
        self._gather()
        if self._partial is None:
            self._results(self._epilogue_of_thread)
        else:
            self._results(self._store_partial)
        return launch(w, grid(blocks), tile.threads, _RESIDENT // tile.threads)

    def _place_block(self) -> Expr:
        """Append which tile a block computes, and of which terms; returns the number of blocks."""
        w, tile, simplify = self._writer, self._tile, self._ctx.loops.simplify
        down = simplify(tirx.floordiv(self._rows + i64(tile.rows - 1), i64(tile.rows)))
        across = simplify(tirx.floordiv(self._columns + i64(tile.columns - 1), i64(tile.columns)))
        (down_text, across_text, batch_text) = w.values([down, across, self._batch])
        index = w.index
        w.add(
            "const int tid = threadIdx.x;",
            f"const {index} tile = blockIdx.x;",
            f"const {index} col0 = tile % {across_text} * {tile.columns};",
            f"const {index} row0 = tile / {across_text} % {down_text} * {tile.rows};",
            f"const {index} layer = tile / {across_text} / {down_text};",
        )
        (terms,) = w.values([count_of(self._ctx.loops, self._c.terms)])
        if self._parts == 1:
            w.add(
                f"const {index} batch = layer;",
                f"const {index} first = 0;",
                f"const {index} end = {terms};",
            )
        else:
            count = constant_int(count_of(self._ctx.loops, self._c.terms)) or 0
            share = ceil_div(ceil_div(count, self._parts), tile.depth) * tile.depth
            w.add(
                f"const {index} batch = layer % {batch_text};",
                f"const {index} part = layer / {batch_text};",
                f"const {index} first = part * {share};",
                f"const {index} end = rten_min<{index}>(first + {share}, {terms});",
            )
        name_axes(w, self._c.batch, "batch")
        return simplify(down * across * self._batch * i64(self._parts))

    def _sums(self) -> None:
        tile = self._tile
        across = tile.columns // tile.own_columns
        self._writer.add(
            f"const int tx = tid % {across} * {LANES};",
            f"const int ty = tid / {across} * {LANES};",
            f"{c_type(self._dtype)} sums[{tile.own_rows}][{tile.own_columns}];",
            "#pragma unroll",
            f"for (int i = 0; i < {tile.own_rows}; ++i)",
            "#pragma unroll",
            f"for (int j = 0; j < {tile.own_columns}; ++j) sums[i][j] = 0;",
        )
        if self._warps is not None:
            self._warps.declare(self._writer)

    def _gather(self) -> None:
        """Bring sums of tensor cores to the threads that store them."""
        if self._warps is None:
            return
        tile = self._tile
        half_rows = tile.rows // (tile.own_rows // LANES)
        half_columns = tile.columns // (tile.own_columns // LANES)
        row = f"i / {LANES} * {half_rows} + ty + i % {LANES}"
        column = f"j / {LANES} * {half_columns} + tx + j % {LANES}"
        self._warps.gather(
            self._writer,
            f"#pragma unroll\n  for (int i = 0; i < {tile.own_rows}; ++i)\n"
            f"  #pragma unroll\n  for (int j = 0; j < {tile.own_columns}; ++j) "
            f"sums[i][j] = results[{row}][{column}];",
        )

    def _loop(self, left: Factor, right: Factor) -> None:
        w, tile, index = self._writer, self._tile, self._writer.index
        w.add(
            "int half = 0;",
            f"for ({index} now = first - {tile.depth};;) {{",
            f"const {index} next = now + {tile.depth};",
            "if (next < end) {",
        )
        left.load("next", "end")
        right.load("next", "end")
        w.add("}", "if (now >= first) {")
        self._multiply()
        w.add("}", "if (next >= end) break;", "half ^= 1;")
        left.store("half")
        right.store("half")
        w.add("__syncthreads();", "now = next;", "}")

    def _multiply(self) -> None:
        w, tile = self._writer, self._tile
        if self._warps is not None:
            self._warps.multiply(w)
            return
        ctype, vector = c_type(self._dtype), VECTORS[self._dtype]
        terms = constant_int(count_of(self._ctx.loops, self._c.terms))
        # Where one turn does there is no loop around this one, and the compiler would begin with
        # all loads, for which registers do not do.
        once = terms is not None and terms <= tile.depth
        w.add(
            "#pragma unroll 4" if once else "#pragma unroll",
            f"for (int k = 0; k < {tile.depth}; ++k) {{",
            f"{ctype} a[{tile.own_rows}], b[{tile.own_columns}];",
        )
        for name, source, at, own, extent in (
            ("a", "rows", "ty", tile.own_rows, tile.rows),
            ("b", "cols", "tx", tile.own_columns, tile.columns),
        ):
            quads = own // LANES
            for quad in range(quads):
                part = w.fresh("v")
                shift = f" + {quad * (extent // quads)}" if quad else ""
                w.add(
                    f"const {vector} {part} = *(const {vector} *)&{source}[half][k][{at}{shift}];"
                )
                for lane, letter in enumerate("xyzw"):
                    w.add(f"{name}[{quad * LANES + lane}] = {part}.{letter};")
        w.add(
            "#pragma unroll",
            f"for (int i = 0; i < {tile.own_rows}; ++i)",
            "#pragma unroll",
            f"for (int j = 0; j < {tile.own_columns}; ++j) sums[i][j] += a[i] * b[j];",
            "}",
        )

    # --- the results ---------------------------------------------------------------------------

    def _results(self, each: Callable[[], None]) -> None:
        """Append loops over the thread's rows, and over its columns in fours."""
        w, tile, index = self._writer, self._tile, self._writer.index
        (rows, columns) = w.values([self._rows, self._columns])
        half_rows = tile.rows // (tile.own_rows // LANES)
        half_columns = tile.columns // (tile.own_columns // LANES)
        w.add(
            "#pragma unroll",
            f"for (int i = 0; i < {tile.own_rows}; ++i) {{",
            f"const {index} row = row0 + i / {LANES} * {half_rows} + ty + i % {LANES};",
            f"if (row < {rows}) {{",
        )
        name_axes(w, self._c.rows, "row")
        w.add(
            "#pragma unroll",
            f"for (int j = 0; j < {tile.own_columns}; j += {LANES}) {{",
            f"const {index} quad = col0 + j / {LANES} * {half_columns} + tx;",
        )
        self._limit = columns
        each()
        w.add("}", "}", "}")

    def _epilogue_of_thread(self) -> None:
        texts = [f"sums[i][j + {lane}]" for lane in range(LANES)]
        _store_results(self._writer, self._c, self._epilogue, self._dtype, texts, self._limit)

    def _store_partial(self) -> None:
        w = self._writer
        assert self._partial is not None
        (rows, columns, batch) = w.values([self._rows, self._columns, self._batch])
        w.written.add(self._partial)
        target = w.buffer(self._partial)
        place = f"((part * {batch} + batch) * {rows} + row) * {columns} + quad"
        if (constant_int(self._columns) or 1) % LANES == 0:
            vector = VECTORS[self._dtype]
            parts = ", ".join(f"sums[i][j + {lane}]" for lane in range(LANES))
            w.add(
                f"if (quad < {columns}) *({vector} *)({target} + {place}) = make_{vector}({parts});"
            )
            return
        for lane in range(LANES):
            w.add(
                f"if (quad + {lane} < {columns}) {target}[{place} + {lane}] = sums[i][j + {lane}];"
            )

    def _finish(self, partial: Buffer) -> Launch:
        """The kernel that adds up parts: a thread for four columns."""
        ctx, c = self._ctx, self._c
        w = Writer(ctx.loops, indices(ctx.kernel))
        columns = constant_int(self._columns) or 0
        rows, batch = constant_int(self._rows) or 0, constant_int(self._batch) or 0
        quads = ceil_div(columns, LANES)
        layer = batch * rows * columns
        source = w.buffer(partial)
        w.add(
            f"const int at = (int)blockIdx.x * {_FINISH_THREADS} + threadIdx.x;",
            f"if (at >= {batch * rows * quads}) return;",
            f"const int quad = at % {quads} * {LANES};",
            f"const int row = at / {quads} % {rows};",
            f"const int batch = at / {quads * rows};",
            f"const int place = (batch * {rows} + row) * {columns} + quad;",
            f"{c_type(self._dtype)} sums[{LANES}] = {{0, 0, 0, 0}};",
            f"for (int part = 0; part < {self._parts}; ++part) {{",
        )
        if columns % LANES == 0:
            vector = VECTORS[self._dtype]
            w.add(f"const {vector} v = *(const {vector} *)({source} + part * {layer} + place);")
            w.add(*(f"sums[{lane}] += v.{letter};" for lane, letter in enumerate("xyzw")))
        else:
            w.add(
                f"for (int lane = 0; lane < {LANES}; ++lane)",
                f"if (quad + lane < {columns})",
                f"sums[lane] += {source}[part * {layer} + place + lane];",
            )
        w.add("}")
        name_axes(w, c.batch, "batch")
        name_axes(w, c.rows, "row")
        texts = [f"sums[{lane}]" for lane in range(LANES)]
        _store_results(w, c, self._epilogue, self._dtype, texts, str(columns))
        count = ceil_div(batch * rows * quads, _FINISH_THREADS)
        return launch(w, grid(count), _FINISH_THREADS)


def _store_results(
    w: Writer, c: Contraction, epilogue: Epilogue, dtype: str, sums: Sequence[str], limit: str
) -> None:
    """Append the epilogue of four sums of one row, from column ``quad`` on."""
    acc = tirx.Var("acc", dtype)
    values, places = epilogue.results(acc, c.where)
    axes: list[Axis] = [*c.batch, *c.rows, *c.columns]
    last = constant_int(c.columns[-1].extent)
    if (
        last is not None
        and last % LANES == 0
        and all(is_wide_store(w, buffer, place, axes) for buffer, place in places)
    ):
        w.add(f"if (quad < {limit}) {{")
        name_axes(w, c.columns, "quad")
        by_lane = wide_values(w, values, axes, {acc: sums})
        for index, (buffer, place) in enumerate(places):
            wide_store(w, buffer, place, [texts[index] for texts in by_lane])
        w.add("}")
        return
    for lane, text in enumerate(sums):
        column = w.fresh("column")
        w.add(f"const {w.index} {column} = quad + {lane};", f"if ({column} < {limit}) {{")
        name_axes(w, c.columns, column)
        w.hold(acc, text)
        for value, (buffer, place) in zip(w.values(values), places, strict=True):
            w.store(buffer, place, value)
        w.add("}")
