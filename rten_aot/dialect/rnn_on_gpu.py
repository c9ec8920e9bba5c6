"""Recurrent layers on GPUs: a block of threads for each direction and batch entry.

A thread takes a hidden unit, or several one after the other. What is outside of the loops of
threads all threads of a block do alike.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx
from tvm.tirx import Expr, Stmt

from rten_aot.dialect.gpu_loops import BLOCKS, THREADS, shared
from rten_aot.dialect.loops import int64, nothing, static
from rten_aot.dialect.recurrence import LANES, Accumulators, Walk
from rten_aot.dialect.registry import Pattern, define_on_gpu
from rten_aot.dialect.rnn import gru, gru_reset_first, lstm

BARRIER = "__syncthreads"
"""The function in which threads of a block wait for each other."""


class GpuWalk(Walk):
    """The loops for a GPU."""

    def row(self, body: Callable[[Expr], Stmt]) -> Stmt:
        """``body`` for each hidden unit."""
        return shared(int64(self.hidden), body, THREADS)

    def units(self, body: Callable[[Expr], Stmt]) -> Stmt:
        """``body`` for each block of hidden units, of which a thread takes one lane."""

        def one(i: Expr) -> Stmt:
            self._lane = tirx.floormod(i, int64(LANES))
            return body(tirx.floordiv(i, int64(LANES)))

        return shared(self.blocks * int64(LANES), one, THREADS)

    def lanes(self, body: Callable[[Expr], Stmt]) -> Stmt:
        """``body`` for the thread's unit of a block."""
        return body(self._lane)

    def assign(self, value: Callable[[Expr], Expr], store: Callable[[Expr, Expr], Stmt]) -> Stmt:
        """``store(lane, value(lane))`` for the thread's unit."""
        return store(self._lane, value(self._lane))

    def sums(self, name: str, gates: int) -> Accumulators:
        """Sums for the gates of the thread's unit."""
        return _Sums(self, name, gates)

    def spread(self, rows: Expr, work: Expr, body: Callable[[Expr], Stmt]) -> Stmt:
        """``body`` for each direction and batch entry, by a block of threads."""
        if static(rows) == 0:
            return nothing()
        return shared(rows, body, BLOCKS)

    def wait(self) -> Stmt | None:
        """Have threads see what the others of the block have stored."""
        return tirx.Evaluate(tirx.call_extern("int32", BARRIER))


class _Sums(Accumulators):
    """Sums of one element."""

    lanes = 1

    def place(self, gate: int, lane: Expr) -> Expr:
        """Where the sum of a gate is."""
        return int64(gate)


def _on_gpu(name: str, function: Callable[..., list[te.Tensor]]) -> None:
    @define_on_gpu(name, pattern=Pattern.OPAQUE)
    @functools.wraps(function)
    def apply(*operands: te.Tensor, **attrs: Any) -> Sequence[te.Tensor]:
        return function(*operands, **attrs, walk_type=GpuWalk)


_on_gpu("lstm", lstm)
_on_gpu("gru", gru)
_on_gpu("gru_reset_first", gru_reset_first)
