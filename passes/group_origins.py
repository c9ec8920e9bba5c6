"""GroupOrigins: fused kernels come from the nodes of all operators in them.

FuseOps and FuseTIR make groups anew and merge equal ones, so their calls carry no nodes. But the
operators inside are the old ones on the old operands: each is found again by what it computes.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeAlias

import tvm
from tvm import relax

from rten_aot.dialect.functions import bindings
from rten_aot.dialect.origins import nodes_of, with_nodes
from rten_aot.errors import InternalError
from rten_aot.passes.base import Rewriter, relax_functions

Origins: TypeAlias = Mapping[str, Sequence[tuple[int, ...]]]
"""For every function, the nodes of each of its kernel calls in order."""

Value: TypeAlias = Hashable
"""What a variable holds: a number for each distinct computation, a tuple of them for a group."""


class NameGroups(Rewriter):
    """``call_tir(f, (x,))`` --> the same call from the nodes that ``origins`` tells."""

    def __init__(self, origins: Origins) -> None:
        super().__init__()
        self._origins = origins
        self._left: Iterator[tuple[int, ...]] = iter(())

    def begin(self, function: relax.Function) -> None:
        """Start with the function's first kernel call."""
        self._left = iter(self._origins[self.function_name])

    def rewrite(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
        """Name the nodes of the next kernel call."""
        if not _is_kernel(value):
            return value
        nodes = next(self._left, None)
        if nodes is None:
            raise InternalError(f"fusion added a kernel call to {self.function_name}")
        return with_nodes(value, nodes)


def group_origins(before: tvm.IRModule, grouped: tvm.IRModule) -> Origins:
    """The nodes of the kernel calls of ``grouped``, which FuseOps made of ``before``.

    Nodes of an operator that cannot be found again are left out.
    """
    origins: dict[str, list[tuple[int, ...]]] = {}
    for name, function in relax_functions(before):
        trace = _Trace(grouped)
        trace.learn(function)
        origins[name.name_hint] = trace.recall(grouped[name.name_hint])
    return origins


class _Trace:
    """Numbers the computations of a function: equal operators on equal operands are equal."""

    def __init__(self, grouped: tvm.IRModule) -> None:
        self._grouped = grouped
        self._numbers: dict[Hashable, int] = {}
        self._nodes: defaultdict[Value, deque[tuple[int, ...]]] = defaultdict(deque)

    def learn(self, function: relax.Function) -> None:
        """Keep the nodes of every call."""
        held = self._params(function)
        for var, value in bindings(function):
            held[var] = self._value(value, held, [])
            self._nodes[held[var]].append(nodes_of(value))

    def recall(self, function: relax.Function) -> list[tuple[int, ...]]:
        """The nodes of each call of a kernel or group."""
        held = self._params(function)
        found = []
        for var, value in bindings(function):
            members: list[Value] = []
            held[var] = self._value(value, held, members)
            if _is_kernel(value) or _is_group(value):
                found.append(tuple(sorted({n for m in members for n in self._next(m)})))
        return found

    def _next(self, number: Value) -> tuple[int, ...]:
        """Of operators that compute the same, the first one first; the last one stays."""
        nodes = self._nodes[number]
        if not nodes:
            return ()
        return nodes.popleft() if len(nodes) > 1 else nodes[0]

    def _params(self, function: relax.Function) -> dict[relax.Var, Value]:
        return {p: self._number("parameter", i) for i, p in enumerate(function.params)}

    def _number(self, *key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _value(self, expr: relax.Expr, held: dict[relax.Var, Value], members: list[Value]) -> Value:
        """What ``expr`` holds; the calls in it, those inside a group too, go to ``members``."""
        if isinstance(expr, tvm.ir.Var):
            return held.get(expr)
        if isinstance(expr, tvm.ir.Tuple):
            return tuple(self._value(f, held, members) for f in expr.fields)
        if isinstance(expr, relax.TupleGetItem):
            source = self._value(expr.tuple_value, held, members)
            if isinstance(source, tuple):
                element: Value = source[expr.index]
                return element
            return self._number("element", source, expr.index)
        if isinstance(expr, tvm.ir.GenericConst):
            return self._number("constant", expr.__chandle__())
        if isinstance(expr, tvm.ir.GlobalVar):
            return self._number("kernel", expr.name_hint)
        if not isinstance(expr, tvm.ir.Call):
            return None  # sizes, which FuseOps renames; kernels for different sizes have two names
        operands = [self._value(a, held, members) for a in expr.args]
        if _is_group(expr):
            return self._inside(self._grouped[expr.op.name_hint], operands, members)
        members.append(self._number(expr.op.name, *operands))
        return members[-1]

    def _inside(
        self, group: relax.Function, operands: Sequence[Value], members: list[Value]
    ) -> Value:
        held = dict(zip(group.params, operands, strict=True))
        for var, value in bindings(group):
            held[var] = self._value(value, held, members)
        return self._value(group.body.body, held, members)


def _is_group(expr: relax.Expr) -> bool:
    return isinstance(expr, tvm.ir.Call) and isinstance(expr.op, tvm.ir.GlobalVar)


def _is_kernel(expr: relax.Expr) -> bool:
    return isinstance(expr, tvm.ir.Call) and getattr(expr.op, "name", "") == "relax.call_tir"
