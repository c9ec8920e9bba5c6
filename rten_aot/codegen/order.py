"""The order in which code computes the operands of an expression.

TVM's code generator leaves that order to the C++ compiler that built TVM, and those of its packages
for x86-64 and AArch64 differ in it. So nothing here is left open: of the operands of a node at most
one is computed, the others have names already.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Hashable, Sequence

import tvm
from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad

from rten_aot.targets.common.expr import (
    children,
    dtype_of,
    i64,
    identity,
    is_call,
    rebuild,
    substitute,
    walk,
)
from rten_aot.targets.common.loops import seq

# Sets of classes, which answer faster than isinstance does for TVM's.
_ATOMS = {tirx.Var, tirx.IntImm, tirx.FloatImm, tvm.ir.StringImm}
_SUMS = {tirx.Add, tirx.Sub, tirx.Mul}
_FORWARD = {Call, TensorLoad, tirx.Ramp, tirx.Shuffle}
"""Nodes whose operands the code generator computes in a loop. It has the others computed as
arguments of a C++ function, by GCC on x86-64 from the last to the first."""


@tirx.transform.prim_func_pass(opt_level=0)  # type: ignore[untyped-decorator]
def fix_order(
    function: tirx.PrimFunc, _mod: tvm.IRModule, _context: tvm.transform.PassContext
) -> tirx.PrimFunc:
    """The function with names for operands. Positions that have a name already keep to it."""
    return function.with_body(_statement(function.body, ChainMap()))


_Known = ChainMap[Hashable, tirx.Var]
"""Names of values that are computed whenever the statement at hand runs."""


def _statement(node: tirx.Stmt, known: _Known) -> tirx.Stmt:
    names = _Names(known)

    def body(stmt: tirx.Stmt) -> tirx.Stmt:
        return _statement(stmt, known.new_child())

    match node:
        case tirx.SeqStmt():
            return seq([_statement(s, known) for s in node.seq])
        case tirx.For():
            extent = names(node.extent)
            loop = tirx.For(
                node.loop_var,
                node.min,
                extent,
                node.kind,
                body(node.body),
                node.thread_binding,
                node.annotations,
                node.step,
            )
            return names.ahead_of(loop)
        case tirx.IfThenElse():
            condition = names(node.condition)
            otherwise = None if node.else_case is None else body(node.else_case)
            return names.ahead_of(tirx.IfThenElse(condition, body(node.then_case), otherwise))
        case tirx.BufferStore():
            value, *indices = names.all([node.value, *node.indices])
            return names.ahead_of(tirx.BufferStore(node.buffer, value, indices))
        case tirx.Bind():
            return names.ahead_of(tirx.Bind(node.var, names(node.value)))
        case tirx.Evaluate():
            return names.ahead_of(tirx.Evaluate(names(node.value)))
        case tirx.AttrStmt():  # of another function, if it is that of a parallel loop
            return tirx.AttrStmt(
                node.node, node.attr_key, node.value, _statement(node.body, ChainMap())
            )
        case tirx.While():
            return tirx.While(_closed(node.condition), body(node.body))
    return node


def _closed(expr: Expr) -> Expr:
    """An expression that may not be computed early, with its names inside."""
    names = _Names(ChainMap())
    return names.around(names(expr))


class _Names:
    """Gives names to operands, in the order in which they are to be computed."""

    def __init__(self, known: _Known) -> None:
        self._known = known
        self._given: list[tirx.Stmt] = []

    def __call__(self, expr: Expr) -> Expr:
        """The expression with at most one operand to compute at each node."""
        if _is_atom(expr):
            return expr
        kind, operands = type(expr), children(expr)
        if kind is Call and is_call(expr, "if_then_else"):
            condition, *branches = operands
            return rebuild(expr, [self(condition), *(_closed(b) for b in branches)])
        if kind is Call and is_call(expr, "address_of"):
            (place,) = operands
            return rebuild(expr, [rebuild(place, self.all(children(place)))])
        if kind is tirx.Let:
            return self(substitute(expr.body, {expr.var: self._named(self(expr.value))}))
        if kind in _FORWARD:
            return rebuild(expr, self.all(operands))
        result = rebuild(expr, self.all(operands[::-1])[::-1])
        return self._known.get(_key(result), result) if kind in _SUMS else result

    def all(self, operands: Sequence[Expr]) -> list[Expr]:
        """Operands that are computed in this order."""
        result = list(operands)
        computed = [i for i, operand in enumerate(operands) if not _is_atom(operand)]
        for i in computed:
            result[i] = self(operands[i])
            if i != computed[-1] and not _is_atom(result[i]):
                result[i] = self._named(result[i])
        return result

    def _named(self, value: Expr) -> Expr:
        if _has_vectors_of_truths(value):
            return self._remembered(value)
        var = tirx.Var("t", value.ty)
        self._given.append(tirx.Bind(var, value))
        key = _key(value)
        if key is not None:
            self._known[key] = var
        return var

    def _remembered(self, value: Expr) -> Expr:
        """The value by way of memory that LLVM puts into a register.

        TVM simplifies what has a name, and fails at vectors of truth values.
        """
        dtype, count = dtype_of(value).split("x")
        is_truth = dtype == "bool"
        kind = "int8" if is_truth else dtype
        memory = tirx.decl_buffer([int(count)], kind, name="t", scope="global")
        place = tirx.Ramp(i64(0), i64(1), int(count))
        stored = tirx.Cast(f"{kind}x{count}", value) if is_truth else value
        self._given += [tirx.AllocBuffer(memory), tirx.BufferStore(memory, stored, [place])]
        loaded = tirx.BufferLoad(memory, [place])
        return tirx.Cast(f"boolx{count}", loaded) if is_truth else loaded

    def ahead_of(self, stmt: tirx.Stmt) -> tirx.Stmt:
        """The statement, and before it those that define the names."""
        return seq(self._given, stmt)

    def around(self, expr: Expr) -> Expr:
        """The expression, in the scope of the names."""
        for bind in reversed(self._given):
            assert isinstance(bind, tirx.Bind), "what may not be computed early is no vector"
            expr = tirx.Let(bind.var, bind.value, expr)
        return expr


def _key(expr: Expr) -> Hashable:
    """What is the same for equal positions; None for all else."""
    return _parts(expr) if type(expr) in _SUMS and dtype_of(expr) == "int64" else None


def _parts(expr: Expr) -> Hashable:
    kind = type(expr)
    if kind is tirx.Var:
        return identity(expr)
    if kind is tirx.IntImm:
        return (int(expr.value),)
    if kind not in _SUMS:
        return None
    a, b = _parts(expr.a), _parts(expr.b)
    return None if a is None or b is None else (kind, a, b)


def _has_vectors_of_truths(expr: Expr) -> bool:
    if "x" not in dtype_of(expr):
        return False
    return any(dtype_of(node).startswith("boolx") for node in walk([expr]))


def _is_atom(expr: Expr) -> bool:
    """Whether there is nothing to compute."""
    kind = type(expr)
    return kind in _ATOMS or (kind is tirx.Broadcast and type(expr.value) in _ATOMS - {tirx.Var})
