"""Loops of kernels for GPUs: they say who runs their iterations."""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx
from tvm.tirx import Expr, For, ForKind, IfThenElse, Stmt

from rten_aot.dialect.loops import int64, nothing, static

BLOCKS = "rten.blocks"
"""Annotation of the loop whose iterations are blocks of threads."""
THREADS = "rten.threads"
"""Annotation of loops whose iterations are shared out to the threads of a block."""
_BLOCK = 256


def shared(extent: Expr, body: Callable[[Expr], Stmt], annotation: str) -> Stmt:
    """``body`` for each number in [0, extent), by blocks or by the threads of one."""
    var = tirx.Var("i", "int64")
    return For(var, int64(0), extent, ForKind.SERIAL, body(var), annotations={annotation: int64(1)})


def each_thread(count: Expr, body: Callable[[Expr], Stmt]) -> Stmt:
    """``body`` for each number in [0, count), by a thread of any block."""
    if static(count) == 0:
        return nothing()

    def one(block: Expr, thread: Expr) -> Stmt:
        number = block * int64(_BLOCK) + thread
        return IfThenElse(number < count, body(number), None)

    blocks = tirx.floordiv(count + int64(_BLOCK - 1), int64(_BLOCK))
    return shared(blocks, lambda b: shared(int64(_BLOCK), lambda t: one(b, t), THREADS), BLOCKS)
