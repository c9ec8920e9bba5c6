"""Building blocks of kernels that are written as loops (see ``direct.py``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from tvm import tirx
from tvm.tirx import BufferLoad, BufferStore, Expr, For, ForKind, IfThenElse, Stmt

Index: TypeAlias = "int | Expr"

PARALLEL_ELEMENTS = 32768
"""Below so many elements, waking other threads costs more than they save."""
CHUNK_BYTES = 64
COPY_BLOCK = 8192
"""Elements that one thread copies at a time."""


def int64(value: Index) -> Expr:
    """``value`` as an expression; numbers become 64-bit."""
    return tirx.const(value, "int64") if isinstance(value, int) else value


def static(value: Index) -> int | None:
    """The number that ``value`` is, None if it is known at run time only."""
    if isinstance(value, int):
        return value
    return int(value.value) if isinstance(value, tirx.IntImm) else None


def product(sizes: Sequence[Index]) -> Expr:
    """The number of elements of a shape."""
    numbers = [n for s in sizes if (n := static(s)) is not None]
    result = int64(math.prod(numbers))
    for size in sizes:
        if static(size) is None:
            result = result * size
    return result


def seq(*statements: Stmt | None) -> Stmt:
    """One statement after the other; None is left out."""
    present = [s for s in statements if s is not None]
    return present[0] if len(present) == 1 else tirx.SeqStmt(present)


def nothing() -> Stmt:
    """A statement without effect."""
    return tirx.Evaluate(tirx.const(0, "int32"))


def loop(
    extent: Index,
    body: Callable[[Expr], Stmt],
    *,
    kind: ForKind = ForKind.SERIAL,
    name: str = "i",
) -> Stmt:
    """``body`` for each number in [0, extent)."""
    var = tirx.Var(name, "int64")
    return For(var, int64(0), int64(extent), kind, body(var))


def vector(lanes: int, body: Callable[[Expr], Stmt]) -> Stmt:
    """``body`` for each number in [0, lanes), all at once."""
    return loop(lanes, body, kind=ForKind.VECTORIZED, name="v") if lanes > 1 else body(int64(0))


def nest(extents: Sequence[Index], body: Callable[[list[Expr]], Stmt]) -> Stmt:
    """``body`` for each index of a tensor of this shape, in memory order."""
    variables = [tirx.Var(f"i{k}", "int64") for k in range(len(extents))]
    statement = body(list(variables))
    for var, extent in zip(reversed(variables), reversed(extents), strict=True):
        statement = For(var, int64(0), int64(extent), ForKind.SERIAL, statement)
    return statement


def parallel(extent: Index, elements: Index, body: Callable[[Expr], Stmt], name: str = "p") -> Stmt:
    """A loop that is shared between threads if the work, counted in elements, is worth it."""
    if static(extent) == 0:
        return nothing()
    if static(extent) == 1:
        return body(int64(0))
    worth = int64(elements) >= int64(PARALLEL_ELEMENTS)
    decided = static(elements)
    if decided is not None:
        kind = ForKind.PARALLEL if decided >= PARALLEL_ELEMENTS else ForKind.SERIAL
        return loop(extent, body, kind=kind, name=name)
    return IfThenElse(
        worth,
        loop(extent, body, kind=ForKind.PARALLEL, name=name),
        loop(extent, body, name=name),
    )


def contiguous(extent: Index, lanes: int, body: Callable[[Expr], Stmt]) -> Stmt:
    """``body`` for each number in [0, extent): vectors of ``lanes``, then what is left."""
    count = static(extent)
    if count is None:
        whole = tirx.floordiv(int64(extent), int64(lanes))
        return seq(
            loop(whole, lambda c: vector(lanes, lambda v: body(c * int64(lanes) + v)), name="c"),
            loop(
                int64(extent) - whole * int64(lanes),
                lambda r: body(whole * int64(lanes) + r),
                name="r",
            ),
        )
    parts: list[Stmt | None] = []
    done = count // lanes * lanes
    if done == lanes:
        parts.append(vector(lanes, body))
    elif done:
        whole_count = count // lanes
        parts.append(
            loop(whole_count, lambda c: vector(lanes, lambda v: body(c * int64(lanes) + v)))
        )
    while done < count:
        step = 1 << ((count - done).bit_length() - 1)
        parts.append(vector(step, lambda v, start=done: body(int64(start) + v)))
        done += step
    return seq(*parts) if parts else nothing()


def lanes_of(dtype: str) -> int:
    """How many elements make a chunk of one cache line."""
    return CHUNK_BYTES // np.dtype(dtype).itemsize


def flat_load(buffer: tirx.Buffer, offset: Index) -> Expr:
    """The element at ``offset`` from the start of a compact buffer, whatever its rank."""
    return BufferLoad(buffer, _flat(buffer, offset))


def flat_store(buffer: tirx.Buffer, offset: Index, value: Expr) -> Stmt:
    """Set the element at ``offset`` from the start of a compact buffer, whatever its rank."""
    return BufferStore(buffer, value, _flat(buffer, offset))


def _flat(buffer: tirx.Buffer, offset: Index) -> list[Expr]:
    rank = len(buffer.shape)
    # The last index may go past its extent: addresses are computed from the row-major strides.
    return [int64(0)] * (rank - 1) + [int64(offset)] if rank else []


def copy_run(
    source: tirx.Buffer, first: Index, target: tirx.Buffer, to: Index, count: Index
) -> Stmt:
    """Copy ``count`` elements from offset ``first`` of a buffer to offset ``to`` of another."""
    lanes = lanes_of(str(source.dtype))

    def move(start: Index, extent: Index) -> Stmt:
        return contiguous(
            extent,
            lanes,
            lambda i: flat_store(target, to + (start + i), flat_load(source, first + (start + i))),
        )

    blocks = tirx.floordiv(int64(count), int64(COPY_BLOCK))
    done = blocks * int64(COPY_BLOCK)
    return seq(
        parallel(blocks, count, lambda b: move(b * int64(COPY_BLOCK), COPY_BLOCK))
        if static(blocks) != 0
        else None,
        move(done, count - done),
    )


class Cell:
    """A variable of a loop kernel: one number in a register."""

    def __init__(self, name: str, dtype: str = "int64", size: int = 1) -> None:
        # Only scope "global" and a constant size under 1 KB stay on the stack.
        self.buffer = tirx.decl_buffer([size], dtype, name=name, scope="global")
        self.declare: Stmt = tirx.AllocBuffer(self.buffer)

    def get(self, index: Index = 0) -> Expr:
        """The value."""
        return BufferLoad(self.buffer, [int64(index)])

    def set(self, value: Expr, index: Index = 0) -> Stmt:
        """Assign ``value``."""
        return BufferStore(self.buffer, value, [int64(index)])
