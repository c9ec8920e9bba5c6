"""Walks over tirx expressions: children, rebuilding, substitution.

Every walk keeps the sharing of sub-expressions (a result is remembered by the identity of its
node), so an expression that is small as a graph stays small, however large it is as a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad

Buffer: TypeAlias = Any
"""A variable whose type is ``tirx.BufferType``."""

_BINARY = (
    tirx.Add,
    tirx.Sub,
    tirx.Mul,
    tirx.Div,
    tirx.Mod,
    tirx.FloorDiv,
    tirx.FloorMod,
    tirx.Min,
    tirx.Max,
    tirx.EQ,
    tirx.NE,
    tirx.LT,
    tirx.LE,
    tirx.GT,
    tirx.GE,
    tirx.And,
    tirx.Or,
    tirx.LShift,
    tirx.RShift,
    tirx.BitwiseAnd,
    tirx.BitwiseOr,
    tirx.BitwiseXor,
)
_UNARY = (tirx.Not, tirx.BitwiseNot)
_LEAVES = (tirx.Var, tirx.IntImm, tirx.FloatImm, tvm.ir.StringImm)


def i64(value: int | Expr) -> Expr:
    """``value`` as an int64 expression."""
    if isinstance(value, int):
        return tirx.IntImm("int64", value)
    return value if dtype_of(value) == "int64" else tirx.Cast("int64", value)


def dtype_of(expr: Expr) -> str:
    """The element type, e.g. ``float32``."""
    return str(expr.ty.dtype) if isinstance(expr.ty, tvm.ir.PrimType) else str(expr.ty)


def element_bits(dtype: str) -> int:
    """Bits of one element in memory: ``float32`` -> 32, ``bool`` -> 8."""
    digits = "".join(c for c in dtype if c.isdigit())
    return int(digits) if digits else 8


def constant_int(expr: Expr | int) -> int | None:
    """The value of an integer constant; None for any other expression."""
    if isinstance(expr, int):
        return expr
    return int(expr.value) if isinstance(expr, tirx.IntImm) else None


def is_vectorisable(expr: Expr) -> bool:
    """Whether TVM can turn this node (not its operands) into a vector operation.

    A statement with another node becomes a scalar loop, in which bindings of vectors are lost.
    """
    if not isinstance(expr, Call):
        return True
    if is_call(expr, "if_then_else") or is_call(expr, "reinterpret"):
        return True
    return isinstance(expr.op, tvm.ir.Op) and bool(expr.op.get_attr("TVectorizable"))


def is_call(expr: Expr, name: str) -> bool:
    """Whether ``expr`` calls the operator whose name without dialect is ``name``."""
    return (
        isinstance(expr, Call)
        and isinstance(expr.op, tvm.ir.Op)
        and expr.op.name.rsplit(".", 1)[-1] == name
    )


_OPERANDS: dict[type, Callable[[Any], tuple[Expr, ...]]] = {
    **{kind: lambda _: () for kind in _LEAVES},
    **{kind: lambda e: (e.a, e.b) for kind in _BINARY},
    **{kind: lambda e: (e.a,) for kind in _UNARY},
    TensorLoad: lambda e: tuple(e.indices),
    tirx.Select: lambda e: (e.condition, e.true_value, e.false_value),
    tirx.Cast: lambda e: (e.value,),
    Call: lambda e: tuple(e.args),
    tirx.Let: lambda e: (e.value, e.body),
    tirx.Broadcast: lambda e: (e.value,),
    tirx.Ramp: lambda e: (e.base, e.stride),
    tirx.Shuffle: lambda e: (*e.vectors, *e.indices),
}

_REBUILD: dict[type, Callable[[Any, Sequence[Expr]], Expr]] = {
    **{kind: lambda e, _: e for kind in _LEAVES},
    **{kind: lambda e, new: type(e)(*new) for kind in (*_BINARY, *_UNARY)},
    TensorLoad: lambda e, new: tirx.BufferLoad(e.source, list(new)),
    tirx.Select: lambda _, new: tirx.Select(*new),
    tirx.Cast: lambda e, new: tirx.Cast(dtype_of(e), new[0]),
    Call: lambda e, new: Call(e.op, list(new), e.attrs, list(e.ty_args), ret_ty=e.ty),
    tirx.Let: lambda e, new: tirx.Let(e.var, *new),
    tirx.Broadcast: lambda e, new: tirx.Broadcast(new[0], e.lanes),
    tirx.Ramp: lambda e, new: tirx.Ramp(new[0], new[1], e.lanes),
    tirx.Shuffle: lambda e, new: tirx.Shuffle(new[: len(e.vectors)], new[len(e.vectors) :]),
}


def children(expr: Expr) -> tuple[Expr, ...]:
    """The operands of ``expr``; for a Let its value and body."""
    operands = _OPERANDS.get(type(expr))
    if operands is None:
        raise NotImplementedError(f"expression node {type(expr).__name__}")
    return operands(expr)


def rebuild(expr: Expr, operands: Sequence[Expr]) -> Expr:
    """``expr`` with other operands (in the order of ``children``)."""
    return _REBUILD[type(expr)](expr, operands)


def identity(expr: Expr) -> int:
    """A number that tells a node from all others that live: its address.

    ``hash`` will not do: TVM hashes integers by value, and Python hashes -1 and -2 alike.
    """
    return int(expr.__chandle__())


class Rewriter:
    """Replaces nodes of expressions; remembers results across calls.

    ``replace(node)`` is asked before the operands are visited; None means: rewrite the operands.
    """

    def __init__(self, replace: Callable[[Expr], Expr | None]) -> None:
        self._replace = replace
        # The node itself is kept beside the result, so that its address is not used again.
        self._done: dict[int, tuple[Expr, Expr]] = {}

    def __call__(self, expr: Expr) -> Expr:
        """The rewritten expression."""
        handle = identity(expr)
        found = self._done.get(handle)
        if found is not None:
            return found[1]
        result = self._replace(expr)
        if result is None:
            old = children(expr)
            new = [self(c) for c in old]
            changed = any(not a.same_as(b) for a, b in zip(old, new, strict=True))
            result = rebuild(expr, new) if changed else expr
        self._done[handle] = (expr, result)
        return result


def substitute(expr: Expr, mapping: Mapping[tirx.Var, Expr]) -> Expr:
    """``expr`` with variables replaced."""
    if not mapping:
        return expr
    return Rewriter(lambda e: mapping.get(e) if isinstance(e, tirx.Var) else None)(expr)


def canonical(expr: Expr) -> Expr:
    """``expr`` in the form that the schedules expect.

    It is without Let (uses of a bound variable refer to its value), and without those calls that
    TVM does not vectorise but that have an equal that it does.
    """
    values: dict[tirx.Var, Expr] = {}

    def replace(node: Expr) -> Expr | None:
        if isinstance(node, tirx.Let):
            values[node.var] = rewrite(node.value)
            return rewrite(node.body)
        if isinstance(node, tirx.Var):
            return values.get(node)
        if isinstance(node, tirx.Select):
            simpler = _without_nan_test(node)
            return None if simpler is None else rewrite(simpler)
        if is_call(node, "isnan"):
            return _is_nan(rewrite(node.args[0]))
        if is_call(node, "nearbyint"):
            return tirx.call_llvm_pure_intrin(
                dtype_of(node), "llvm.nearbyint", rewrite(node.args[0])
            )
        if is_call(node, "rsqrt"):
            return tirx.const(1.0, dtype_of(node)) / tirx.sqrt(rewrite(node.args[0]))
        return None

    rewrite = Rewriter(replace)
    return rewrite(expr)


def _without_nan_test(node: Expr) -> Expr | None:
    """A Select that asks whether a float is NaN, with one comparison in place of the question."""
    condition = node.condition
    if is_call(condition, "isnan") and dtype_of(condition.args[0]).startswith("float"):
        x = condition.args[0]
        return tirx.Select(x <= _infinity(x), node.false_value, node.true_value)
    if not isinstance(condition, tirx.Or):
        return None
    a, b = node.true_value, node.false_value
    for compare, test in ((condition.a, condition.b), (condition.b, condition.a)):
        # max or min that keeps NaN: a > b or isnan(a) ? a : b -> b <= inf ? (b > a ? b : a) : b
        if (
            isinstance(compare, (tirx.GT, tirx.LT, tirx.GE, tirx.LE))
            and is_call(test, "isnan")
            and dtype_of(a).startswith("float")
            and same(test.args[0], a)
            and same(compare.a, a)
            and same(compare.b, b)
        ):
            strict = tirx.GT if isinstance(compare, (tirx.GT, tirx.GE)) else tirx.LT
            return tirx.Select(b <= _infinity(b), tirx.Select(strict(b, a), b, a), b)
    return None


def _infinity(like: Expr) -> Expr:
    return tirx.const(float("inf"), dtype_of(like))


def _is_nan(x: Expr) -> Expr:
    """A NaN test on the bits (comparisons of a value with itself are folded away)."""
    infinity = {"float16": 0x7C00, "float32": 0x7F800000, "float64": 0x7FF0000000000000}
    dtype = dtype_of(x)
    if dtype not in infinity:
        return tirx.isnan(x)
    bits = f"uint{element_bits(dtype)}"
    magnitude = tirx.const((1 << (element_bits(dtype) - 1)) - 1, bits)
    return (tirx.reinterpret(bits, x) & magnitude) > tirx.const(infinity[dtype], bits)


def walk(exprs: Iterable[Expr]) -> Iterator[Expr]:
    """Every node once, operands before users."""
    seen: dict[int, Expr] = {}

    def visit(expr: Expr) -> Iterator[Expr]:
        if identity(expr) not in seen:
            seen[identity(expr)] = expr
            for child in children(expr):
                yield from visit(child)
            yield expr

    for expr in exprs:
        yield from visit(expr)


def loads(*exprs: Expr) -> list[TensorLoad]:
    """The distinct load nodes, also those inside indices."""
    return [e for e in walk(exprs) if isinstance(e, TensorLoad)]


def free_vars(*exprs: Expr) -> set[tirx.Var]:
    """The variables that occur, buffers left out."""
    return {e for e in walk(exprs) if isinstance(e, tirx.Var)}


def same(a: Expr, b: Expr) -> bool:
    """Whether two expressions are equal in structure, variables by identity."""
    return bool(a.same_as(b)) or bool(tvm_ffi.structural_equal(a, b))
