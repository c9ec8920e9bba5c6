"""Operators that write where an index tensor says, one update after the other.

Negative indices count from the end. An index outside its axis is a run-time failure; its update is
left out. Of two updates of one element without a reduction, the later one stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import te, tirx
from tvm.tirx import Buffer, BufferLoad, Expr, IfThenElse, Stmt

from rten_aot.dialect.direct import direct
from rten_aot.dialect.failure import Failure, fail
from rten_aot.dialect.indexing import from_end, in_range
from rten_aot.dialect.loops import (
    Cell,
    contiguous,
    copy_run,
    flat_load,
    flat_store,
    int64,
    lanes_of,
    nest,
    product,
    seq,
    static,
)
from rten_aot.dialect.registry import Pattern, define
from rten_aot.dialect.scalar import add, maximum, minimum, multiply

_REDUCTIONS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "none": lambda old, new: new,
    "add": add,
    "mul": multiply,
    "min": minimum,
    "max": maximum,
}


@define("scatter_elements", pattern=Pattern.OPAQUE)
def scatter_elements(
    x: te.Tensor,
    indices: te.Tensor,
    updates: te.Tensor,
    *,
    axis: int,
    reduction: str,
    node: int,
) -> te.Tensor:
    """``x`` with single elements replaced; the mirror image of ``gather_elements``.

    ``reduction`` is none, add, mul, min or max.
    """
    write = element_writer(axis, reduction, node)

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        return seq(
            copy_run(ins[0], int64(0), outs[0], int64(0), product(x.shape)),
            nest(list(indices.shape), lambda i: write(ins, outs[0], i)),
        )

    return direct([list(x.shape)], [x, indices, updates], body, [str(x.dtype)], "scatter_elements")


def element_writer(
    axis: int, reduction: str, node: int
) -> Callable[[Sequence[Buffer], Buffer, list[Expr]], Stmt]:
    """Writes the update at an index of ``indices`` to a copy of ``x``, given all inputs."""
    combine = _REDUCTIONS[reduction]

    def write(ins: Sequence[Buffer], out: Buffer, i: list[Expr]) -> Stmt:
        _, indices, updates = ins
        size = out.shape[axis]
        raw = BufferLoad(indices, i)
        index = from_end(raw, size)
        where = [*i[:axis], index, *i[axis + 1 :]]
        return IfThenElse(
            in_range(index, size),
            tirx.BufferStore(out, combine(BufferLoad(out, where), BufferLoad(updates, i)), where),
            tirx.Evaluate(fail(Failure.INDEX_OUT_OF_RANGE, node, raw)),
        )

    return write


@define("scatter_nd", pattern=Pattern.OPAQUE)
def scatter_nd(
    x: te.Tensor, indices: te.Tensor, updates: te.Tensor, *, reduction: str, node: int
) -> te.Tensor:
    """``x`` with slices replaced; the mirror image of ``gather_nd`` without batch dimensions.

    The last size of ``indices`` is static. ``reduction`` is none, add, mul, min or max.
    """
    dtype = str(x.dtype)
    combine = _REDUCTIONS[reduction]
    depth = static(indices.shape[-1])
    assert depth is not None
    tuples = product(indices.shape[:-1])
    slice_size = product(x.shape[depth:])

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        source, index_buffer, update_buffer = ins
        out = outs[0]
        start = Cell("start")

        def locate(t: Expr) -> Stmt:
            """Set ``start`` to the offset of the slice, or to -1 after a failure."""
            steps = [start.set(int64(0))]
            for k in range(depth):
                raw = flat_load(index_buffer, t * int64(depth) + int64(k))
                index = from_end(raw, x.shape[k])
                stride = product(x.shape[k + 1 :])
                bad = seq(
                    tirx.Evaluate(fail(Failure.INDEX_OUT_OF_RANGE, node, raw)),
                    start.set(int64(-1)),
                )
                good = start.set(start.get() + index * stride)
                checked = IfThenElse(in_range(index, x.shape[k]), good, bad)
                steps.append(IfThenElse(start.get() >= int64(0), checked, None))
            return seq(*steps)

        def write(t: Expr) -> Stmt:
            def one(i: Expr) -> Stmt:
                new = flat_load(update_buffer, t * slice_size + i)
                old = flat_load(out, start.get() + i)
                return flat_store(out, start.get() + i, combine(old, new))

            update = contiguous(slice_size, lanes_of(dtype), one)
            return seq(locate(t), IfThenElse(start.get() >= int64(0), update, None))

        return seq(
            start.declare,
            copy_run(source, int64(0), out, int64(0), product(x.shape)),
            nest([tuples], lambda i: write(i[0])),
        )

    return direct([list(x.shape)], [x, indices, updates], body, [dtype], "scatter_nd")
