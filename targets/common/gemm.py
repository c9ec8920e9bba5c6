"""Matrix products in register tiles: packed constants, matrices in memory, batches of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import tirx
from tvm.ir import Expr, TensorLoad
from tvm.tirx import Stmt

from rten_aot.targets.common.blocks import Matrices, copy_to_blocks
from rten_aot.targets.common.choices import Decisions
from rten_aot.targets.common.context import Context
from rten_aot.targets.common.expr import (
    Buffer,
    constant_int,
    element_bits,
    free_vars,
    i64,
    substitute,
)
from rten_aot.targets.common.halves import stored_load, widened
from rten_aot.targets.common.loops import seq
from rten_aot.targets.common.packing import (
    Blocks,
    columns_in_copy,
    columns_in_place,
    is_dot_products,
)
from rten_aot.targets.common.product import Block, Product, ProductLoops
from rten_aot.targets.common.stages import Stage
from rten_aot.targets.common.tiles import Names, RowIndex, epilogue_is_flat


def schedule_gemm(ctx: Context, stage: Stage) -> Stmt | None:
    """Rules for ``rten.gemm_packed`` and ``rten.matmul`` of float32 matrices."""
    if not isinstance(stage.value, tirx.Mul):
        return None
    a, b = stage.value.a, stored_load(stage.value.b)
    if not isinstance(a, TensorLoad) or b is None:
        return None
    if _is_dot_products(stage):
        ctx.note("dot products")
        return None
    before = [ctx.materialise(a.source), ctx.materialise(b.source)]
    gemm = _Gemm(ctx, stage, a, b)
    body = gemm.build()
    ctx.finish(gemm.epilogue)
    ctx.decide(gemm.decisions)
    return seq(before, body)


def _is_dot_products(stage: Stage) -> bool:
    """Whether both factors of the few sums are contiguous, so that a plain reduction is best."""
    if stage.int_annotation("packed", 0):
        return False
    rows, columns = (constant_int(axis.extent) for axis in stage.spatial[-2:])
    return is_dot_products(rows, columns, bool(stage.int_annotation("transpose_b", 0)))


class _Gemm:
    """The factors of a matrix product, and where its sums go."""

    def __init__(self, ctx: Context, stage: Stage, a: TensorLoad, b: TensorLoad) -> None:
        self.epilogue = ctx.epilogue(stage)
        self.decisions = Decisions.of(stage)
        self._ctx = ctx
        self._loops = ctx.loops
        self._stage = stage
        self._a = a
        self._b = b
        self._inner = stage.reduce[0].extent
        self._columns = stage.spatial[-1].extent
        leading = stage.spatial[:-1]
        # Matrices that all use the same right factor are one tall matrix.
        is_shared = not free_vars(*b.indices) & {axis.var for axis in leading}
        self._name = Names(ctx.loops)
        self._batch = RowIndex(ctx.loops, () if is_shared else leading[:-1], self._name)
        self._rows = RowIndex(ctx.loops, leading if is_shared else leading[-1:], self._name)
        self._flat_out = is_shared and epilogue_is_flat(self._rows, self.epilogue, stage.dtype)
        self._flat_in = is_shared and self._reads_flat()

    def build(self) -> Stmt:
        """The loops."""
        if self._stage.int_annotation("packed", 0):
            return self._from_blocks(constant_int(self._b.source.ty.shape[-1]) or 1)
        transposed = self._stage.int_annotation("transpose_b", 0)
        known = constant_int(self._columns)
        if known is not None and not transposed:
            return self._in_place(known)
        model = columns_in_copy(self._ctx.machine, known)
        width = self.decisions.take("width", model, "least padding")
        packed, packing = self._pack(width)
        body = self._loops_of(
            0,
            self._columns,
            width,
            lambda at, k, j: tirx.BufferLoad(packed, [at.batch, at.block, k, j]),
            self.decisions,
        )
        return seq(packing, body)

    def _from_blocks(self, packed: int) -> Stmt:
        """Reads a right matrix that is packed in blocks of so many columns."""
        blocks = Blocks.of(self._ctx.machine, packed, self.decisions.record.width)
        self.decisions.know("width", blocks.tile)

        def right(at: Block, k: Expr, j: Expr) -> Expr:
            block, column = blocks.place(at.block, j)
            return widened(self._ctx.values.load(self._b.source, [block, k, column]))

        return self._loops_of(0, self._columns, blocks.tile, right, self.decisions)

    def _in_place(self, columns: int) -> Stmt:
        """Reads the right matrix where it lies: whole blocks of columns, then the rest.

        What is decided is for the former.
        """
        parts: list[Stmt] = []
        first = 0
        while first < columns:
            width = columns_in_place(self._ctx.machine, columns - first)
            decisions = Decisions()
            if first == 0:
                decisions = self.decisions
                width = decisions.take("width", width, "as wide as may be without padding")
            count = (columns - first) // width * width
            parts.append(
                self._loops_of(
                    first,
                    i64(count),
                    width,
                    lambda at, k, j, first=first, width=width: self._element_of_b(
                        at, k, at.block * i64(width) + j + i64(first)
                    ),
                    decisions,
                )
            )
            first += count
        return seq(*parts)

    def _loops_of(
        self,
        first: int,
        columns: Expr,
        width: int,
        right: Callable[[Block, Expr, Expr], Expr],
        decisions: Decisions,
    ) -> Stmt:
        """The product for ``columns`` columns from ``first`` on."""
        inner = constant_int(self._inner)

        def operands(
            at: Block,
        ) -> tuple[
            list[Stmt],
            Callable[[int, Sequence[Expr]], Expr],
            Callable[[Sequence[Expr], Expr], Expr],
        ]:
            before, factor = self._left(at)
            return before, factor, lambda ks, j: right(at, ks[0], j)

        product = Product(
            batches=self._batch.count,
            rows=self._rows.count,
            groups=1,
            columns=columns,
            width=width,
            reduce=[("k", self._inner)],
            row_bytes=4 * (inner or 512),
            operands=operands,
            emit=lambda at, row, j, value: self._emit(at, row, j, first, width, value),
            is_packed=bool(self._stage.int_annotation("packed", 0)),
            right_bytes=element_bits(str(self._b.source.ty.dtype)) // 8,
        )
        return ProductLoops(self._ctx, product, self._name, decisions).build()

    # -- operands -------------------------------------------------------------------------------

    def _reads_flat(self) -> bool:
        probes = [tirx.Var(f"q{d}", "int64") for d in range(len(self._rows.extents))]
        k = tirx.Var("k", "int64")
        place = self._place(self._a, probes, i64(0), k)
        return self._rows.is_flat(probes, [(self._a.source, place)])

    def _place(
        self, factor: TensorLoad, leading: Sequence[Expr], column: Expr, k: Expr
    ) -> list[Expr]:
        where = dict(zip([a.var for a in self._stage.spatial], [*leading, column], strict=True))
        where[self._stage.reduce[0].var] = k
        return [self._loops.simplify(substitute(i, where)) for i in factor.indices]

    def _left(self, at: Block) -> tuple[list[Stmt], Callable[[int, Sequence[Expr]], Expr]]:
        before: list[Stmt] = []
        places: list[list[Expr]] = []
        batch = self._bound(self._batch.split(at.batch), before)
        for i in range(at.rows):
            row = at.row + i64(i)
            if self._flat_in:
                places.append([*batch, *self._rows.flat(row)])
            else:
                places.append([*batch, *self._bound(self._rows.split(row), before)])

        def factor(row: int, ks: Sequence[Expr]) -> Expr:
            return self._ctx.values.load(
                self._a.source, self._place(self._a, places[row], i64(0), ks[0])
            )

        return before, factor

    def _bound(self, indices: Sequence[Expr], before: list[Stmt]) -> list[Expr]:
        """Variables for what is computed by division."""
        if len(indices) <= 1:
            return list(indices)
        result: list[Expr] = []
        for index in indices:
            var = tirx.Var("p", "int64")
            before.append(tirx.Bind(var, index))
            result.append(var)
        return result

    def _element_of_b(self, at: Block, k: Expr, column: Expr) -> Expr:
        leading = [*self._batch.split(at.batch), *[i64(0)] * len(self._rows.extents)]
        return self._ctx.values.load(self._b.source, self._place(self._b, leading, column, k))

    def _pack(self, width: int) -> tuple[Buffer, Stmt]:
        """Copies the right matrices into blocks of columns."""

        def element(batch: Expr, k: Expr, column: Expr) -> Expr:
            return self._element_of_b(Block(batch, i64(0), 1, i64(0), i64(0)), k, column)

        matrices = Matrices(
            self._batch.extents,
            self._inner,
            self._columns,
            element,
            by_column=bool(self._stage.int_annotation("transpose_b", 0)),
            dtype=self._stage.dtype,
        )
        return copy_to_blocks(self._ctx, matrices, width, self._name)

    # -- results --------------------------------------------------------------------------------

    def _emit(
        self, at: Block, row: Expr, j: Expr, first: int, width: int, value: Expr
    ) -> list[Stmt]:
        index = at.row + row
        rows = self._rows.flat(index) if self._flat_out else self._rows.split(index)
        column = self._loops.simplify(at.block * i64(width) + j + i64(first))
        return self.epilogue.emit(value, [*self._batch.split(at.batch), *rows, column])
