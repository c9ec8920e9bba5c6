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
            parts = [_statement(s, known) for s in node.seq]
            return tirx.SeqStmt([s for p in parts for s in getattr(p, "seq", [p])])
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
            return _while(node, known)
    return node


def _while(node: tirx.While, known: _Known) -> tirx.Stmt:
    """Its condition is computed ahead of the loop and at the end of the body, if it needs names."""
    names, again = _Names(known), _Names(known.new_child())
    condition = names(node.condition)
    body = _statement(node.body, known.new_child())
    if not names.given:
        return tirx.While(condition, body)
    memory = _Memory(dtype_of(condition))
    at_end = again.ahead_of(memory.store(again(node.condition)))
    loop = tirx.While(memory.load(), tirx.SeqStmt([body, at_end]))
    return tirx.SeqStmt(
        [*names.given, tirx.AllocBuffer(memory.buffer), memory.store(condition), loop]
    )


class _Names:
    """Gives names to operands, in the order in which they are to be computed."""

    def __init__(self, known: _Known) -> None:
        self._known = known
        self.given: list[tirx.Stmt] = []
        """What defines the names, in order."""

    def __call__(self, expr: Expr) -> Expr:
        """The expression with at most one operand to compute at each node."""
        if _is_atom(expr):
            return expr
        kind, operands = type(expr), children(expr)
        if kind is Call and is_call(expr, "if_then_else"):
            return self._chosen(expr)
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
        if _has_vectors_of_truths(value):  # at which TVM fails, since it simplifies what has names
            memory = _Memory(dtype_of(value))
            self.given += [tirx.AllocBuffer(memory.buffer), memory.store(value)]
            return memory.load()
        var = tirx.Var("t", value.ty)
        self.given.append(tirx.Bind(var, value))
        key = _key(value)
        if key is not None:
            self._known[key] = var
        return var

    def _chosen(self, expr: Expr) -> Expr:
        """The value of an if_then_else, of which one branch is computed."""
        condition, *branches = children(expr)
        condition = self(condition)
        names = [_Names(self._known.new_child()) for _ in branches]
        values = [own(branch) for own, branch in zip(names, branches, strict=True)]
        if not any(own.given for own in names):
            return rebuild(expr, [condition, *values])
        memory = _Memory(dtype_of(expr))
        stores = [
            own.ahead_of(memory.store(value)) for own, value in zip(names, values, strict=True)
        ]
        self.given += [tirx.AllocBuffer(memory.buffer), tirx.IfThenElse(condition, *stores)]
        return memory.load()

    def ahead_of(self, stmt: tirx.Stmt) -> tirx.Stmt:
        """The statement, and before it those that define the names."""
        return tirx.SeqStmt([*self.given, stmt]) if self.given else stmt


class _Memory:
    """Memory for one value, which LLVM puts into a register."""

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype
        self._in_memory = dtype.replace("bool", "int8")
        kind, _, count = self._in_memory.partition("x")
        self.buffer = tirx.decl_buffer([int(count or 1)], kind, name="t", scope="global")
        self._place = tirx.Ramp(i64(0), i64(1), int(count)) if count else i64(0)

    def store(self, value: Expr) -> tirx.Stmt:
        kept = value if self._in_memory == self._dtype else tirx.Cast(self._in_memory, value)
        return tirx.BufferStore(self.buffer, kept, [self._place])

    def load(self) -> Expr:
        loaded = tirx.BufferLoad(self.buffer, [self._place])
        return loaded if self._in_memory == self._dtype else tirx.Cast(self._dtype, loaded)


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
