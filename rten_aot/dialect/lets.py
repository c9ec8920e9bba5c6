"""Vector code for values with bindings in them, as ``vector_math`` makes them.

TVM's simplifier puts a bound value in the place of its variable, which takes time exponential in
the length of a chain of bindings. It leaves memory alone: here, such values go through local
arrays, which LLVM turns into registers. Schedules of other kernels see to it themselves.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import tirx
from tvm.tirx import Expr, ForKind, Stmt

from rten_aot.dialect.loops import Cell, loop, seq


def vector_store(
    lanes: int, value: Callable[[Expr], Expr], store: Callable[[Expr, Expr], Stmt]
) -> Stmt:
    """``store(v, value(v))`` for each number ``v`` in [0, lanes), all at once.

    All of ``value`` is computed, so it must not rely on branches for its safety.
    """
    cells: list[Cell] = []

    def body(v: Expr) -> Stmt:
        lifted = _Lifter(lanes, v)
        plain = lifted(value(v))
        cells.extend(lifted.cells)
        return seq(*lifted.statements, store(v, plain))

    vectors = loop(lanes, body, kind=ForKind.VECTORIZED, name="v")
    return seq(*[cell.declare for cell in cells], vectors)


class _Lifter:
    """Replaces every ``Let`` in an expression by a local array of one element per lane."""

    def __init__(self, lanes: int, lane: Expr) -> None:
        self.cells: list[Cell] = []
        self.statements: list[Stmt] = []
        self._lanes = lanes
        self._lane = lane
        self._done: dict[Expr, Expr] = {}

    def __call__(self, expr: Expr) -> Expr:
        """The expression without bindings."""
        if expr not in self._done:
            self._done[expr] = self._lift(expr)
        return self._done[expr]

    def _lift(self, expr: Expr) -> Expr:
        match expr:
            case tirx.Let():
                cell = Cell("bound", str(expr.var.ty.dtype), self._lanes)
                self.cells.append(cell)
                self.statements.append(cell.set(self(expr.value), self._lane))
                self._done[expr.var] = cell.get(self._lane)
                return self(expr.body)
            case tirx.Select():
                return tirx.Select(
                    self(expr.condition), self(expr.true_value), self(expr.false_value)
                )
            case tirx.Cast():
                return tirx.Cast(str(expr.ty.dtype), self(expr.value))
            case tvm.ir.Call():
                operands = [self(a) for a in expr.args]
                types = list(expr.ty_args)
                return tvm.ir.Call(expr.op, operands, expr.attrs, types, ret_ty=expr.ty)
            case tirx.Not():
                return tirx.Not(self(expr.a))
        if hasattr(expr, "a") and hasattr(expr, "b"):
            return type(expr)(self(expr.a), self(expr.b))
        # Variables, numbers and loads, whose indices hold no bindings.
        return expr
