"""Where a tensor is not zero: counted first, since the count is a size, then written."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te, tirx
from tvm.tirx import Buffer, Expr, Stmt

from rten_aot.dialect.direct import direct
from rten_aot.dialect.loops import (
    Cell,
    flat_load,
    flat_store,
    int64,
    loop,
    parallel,
    product,
    seq,
)
from rten_aot.dialect.registry import Pattern, define

_BLOCK = 4096
"""Elements that one thread looks at at a time."""


@define("nonzero_count", pattern=Pattern.OPAQUE)
def nonzero_count(x: te.Tensor) -> list[te.Tensor]:
    """How many elements are not zero: in all, as int64[1], and before each block of elements."""
    total = product(x.shape)
    blocks = _blocks(total)

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        count = Cell("count")

        def count_block(b: Expr) -> Stmt:
            found = Cell("found")

            def look(i: Expr) -> Stmt:
                one = tirx.Cast("int64", _is_set(ins[0], b * int64(_BLOCK) + i))
                return found.set(found.get() + one)

            return seq(
                found.declare,
                found.set(int64(0)),
                loop(_length(total, b), look),
                flat_store(outs[1], b, found.get()),
            )

        def add(b: Expr) -> Stmt:
            here = Cell("here")
            return seq(
                here.declare,
                here.set(flat_load(outs[1], b)),
                flat_store(outs[1], b, count.get()),
                count.set(count.get() + here.get()),
            )

        return seq(
            parallel(blocks, total, count_block),
            count.declare,
            count.set(int64(0)),
            loop(blocks, add),
            flat_store(outs[0], 0, count.get()),
        )

    result = direct([[int64(1)], [blocks]], [x], body, ["int64", "int64"], "nonzero_count")
    assert isinstance(result, list)
    return result


@define("nonzero", pattern=Pattern.OPAQUE)
def nonzero(x: te.Tensor, starts: te.Tensor, count: list[Expr]) -> te.Tensor:
    """The int32 indices of what is not zero, one column for each element, in memory order."""
    total, shape = product(x.shape), list(x.shape)

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        def one_block(b: Expr) -> Stmt:
            column = Cell("column")

            def look(i: Expr) -> Stmt:
                place = b * int64(_BLOCK) + i
                stores: list[Stmt] = []
                for axis, index in enumerate(_indices(place, shape)):
                    value = tirx.Cast("int32", index)
                    stores.append(flat_store(outs[0], count[0] * int64(axis) + column.get(), value))
                step = column.set(column.get() + int64(1))
                return tirx.IfThenElse(_is_set(ins[0], place), seq(*stores, step), None)

            return seq(
                column.declare,
                column.set(flat_load(ins[1], b)),
                loop(_length(total, b), look),
            )

        return parallel(_blocks(total), total, one_block)

    result = direct([[int64(len(shape)), count[0]]], [x, starts], body, ["int32"], "nonzero")
    assert isinstance(result, te.Tensor)
    return result


def _blocks(total: Expr) -> Expr:
    return tirx.floordiv(total + int64(_BLOCK - 1), int64(_BLOCK))


def _length(total: Expr, block: Expr) -> Expr:
    return tirx.min(int64(_BLOCK), total - block * int64(_BLOCK))


def _is_set(x: Buffer, place: Expr) -> Expr:
    value = flat_load(x, place)
    differs = tirx.NE(value, tirx.const(0, str(x.dtype)))
    # NaN is not zero, but TVM's comparison does not say so.
    return tirx.Or(differs, tirx.isnan(value)) if str(x.dtype) == "float32" else differs


def _indices(place: Expr, shape: Sequence[Expr]) -> list[Expr]:
    """The indices of the element at an offset of a compact tensor."""
    indices: list[Expr] = []
    for axis, size in enumerate(shape):
        # A size of 0 means that nothing is ever divided.
        inner = tirx.max(product(shape[axis + 1 :]), int64(1))
        index = tirx.floordiv(place, inner)
        indices.append(tirx.floormod(index, tirx.max(size, int64(1))) if axis else index)
    return indices
