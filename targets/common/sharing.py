"""Turns expressions into statements that compute every common part once."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad
from tvm.tirx import Stmt

from rten_aot.targets.common.expr import Buffer, dtype_of, i64, is_call, rebuild
from rten_aot.targets.common.stmts import temporary
from rten_aot.targets.common.values import Interner


def share(values: Sequence[Expr]) -> tuple[list[Stmt], list[Expr]]:
    """Statements that compute what the values use more than once, and the values in those terms.

    The statements may stand in a vectorised loop that a ``Loops`` object makes. Parts that are
    evaluated only under a condition (in a branch of if_then_else) stay there. Index arithmetic is
    left in place: the code generator recognises vector loads by its form.
    """
    _, binds, results = share_around(values, None)
    return binds, results


def share_around(
    values: Sequence[Expr], inner: Collection[tirx.Var] | None
) -> tuple[list[Stmt], list[Stmt], list[Expr]]:
    """Like ``share`` for values in a loop over the variables ``inner``.

    The first list computes what does not depend on them; it is to stand before the loop, which must
    run at least once.
    """
    return _Sharing(inner).run(values)


class _Sharing:
    def __init__(self, inner: Collection[tirx.Var] | None) -> None:
        self._interner = Interner()
        self._inner = inner
        self._uses: dict[int, int] = {}
        self._used_inside: set[int] = set()
        self._strict: set[int] = set()
        self._data: dict[int, bool] = {}
        self._varies: dict[int, bool] = {}
        self._common: dict[int, Expr] = {}
        self._places: set[Buffer] = set()
        self._hoisted: list[Stmt] = []
        self._binds: list[Stmt] = []

    def run(self, values: Sequence[Expr]) -> tuple[list[Stmt], list[Stmt], list[Expr]]:
        roots = [self._interner.number(v) for v in values]
        counted: set[int] = set()
        for root in roots:
            self._uses[root] = self._uses.get(root, 0) + 1
            self._count(root, counted)
            self._mark_strict(root)
        results = [self._build(root, {}, self._binds) for root in roots]
        return self._hoisted, self._binds, results

    def _count(self, node: int, counted: set[int]) -> None:
        # Truth values are not bound, so what they are made of is used wherever they are.
        if node in counted and not self._is_truth(node):
            return
        counted.add(node)
        inside = not self._is_outer(node)
        for child in self._interner.operands[node]:
            self._uses[child] = self._uses.get(child, 0) + 1
            if inside:
                self._used_inside.add(child)
            self._count(child, counted)

    def _mark_strict(self, node: int) -> None:
        if node in self._strict:
            return
        self._strict.add(node)
        operands = self._interner.operands[node]
        if is_call(self._interner.nodes[node], "if_then_else"):
            operands = operands[:1]
        for child in operands:
            self._mark_strict(child)

    def _is_truth(self, node: int) -> bool:
        return dtype_of(self._interner.nodes[node]) == "bool"

    def _is_data(self, node: int) -> bool:
        """Whether the value is more than index arithmetic."""
        known = self._data.get(node)
        if known is None:
            expr = self._interner.nodes[node]
            known = (
                isinstance(expr, (TensorLoad, Call))
                or dtype_of(expr).startswith(("float", "bfloat"))
                or any(self._is_data(c) for c in self._interner.operands[node])
            )
            self._data[node] = known
        return known

    def _is_outer(self, node: int) -> bool:
        """Whether the value is the same in all iterations of the inner loop."""
        if self._inner is None:
            return False
        known = self._varies.get(node)
        if known is None:
            expr = self._interner.nodes[node]
            known = self._varies[node] = not (
                isinstance(expr, tirx.Var) and expr in self._inner
            ) and all(self._is_outer(c) for c in self._interner.operands[node])
        return known

    def _worth_binding(self, node: int) -> bool:
        if not self._interner.operands[node] or not self._is_data(node) or self._is_truth(node):
            return False
        if self._uses[node] > 1:
            return True
        return node in self._strict and node in self._used_inside and self._is_outer(node)

    def _build(self, node: int, known: dict[int, Expr], out: list[Stmt]) -> Expr:
        """The expression of ``node``; what it needs first goes to ``out``.

        ``known`` holds the nodes that have been built where ``out`` is, or outside it.
        """
        if node in known:
            return known[node]
        if node in self._common:
            return self._common[node]
        strict = node in self._strict
        target = out
        if strict:
            target = self._hoisted if self._is_outer(node) else self._binds
        expr = self._interner.nodes[node]
        operands = self._interner.operands[node]
        if not operands:
            result = expr
        elif is_call(expr, "if_then_else"):
            result = self._build_choice(expr, operands, known, target)
        else:
            result = rebuild(expr, [self._build(o, known, out) for o in operands])
        bound = isinstance(result, TensorLoad) and result.source in self._places
        if self._worth_binding(node) and not bound:
            result = self._bind(expr, result, target)
        # Index arithmetic is small; remembering it keeps the walk linear.
        (self._common if strict else known)[node] = result
        return result

    def _build_choice(
        self, expr: Expr, operands: Sequence[int], known: dict[int, Expr], out: list[Stmt]
    ) -> Expr:
        """An if_then_else, as a statement if its branches need statements."""
        condition = self._build(operands[0], known, out)
        branches: list[list[Stmt]] = [[], []]
        arms = [
            self._build(o, dict(known), stmts)
            for o, stmts in zip(operands[1:], branches, strict=True)
        ]
        if not any(branches):
            return rebuild(expr, [condition, *arms])
        place = self._place(expr)
        then, otherwise = (
            tirx.SeqStmt([*stmts, tirx.BufferStore(place, arm, [i64(0)])])
            if stmts
            else tirx.BufferStore(place, arm, [i64(0)])
            for stmts, arm in zip(branches, arms, strict=True)
        )
        out += [tirx.AllocBuffer(place), tirx.IfThenElse(condition, then, otherwise)]
        return tirx.BufferLoad(place, [i64(0)])

    def _bind(self, expr: Expr, value: Expr, out: list[Stmt]) -> Expr:
        """A name for the value.

        A load is bound to a variable. Anything else is put into a temporary buffer: TVM replaces
        variables by the pure expressions they are bound to, at every level, in its simplifier and
        again in its code generator, which takes time exponential in the depth of the formula.
        """
        if isinstance(expr, TensorLoad):
            var = tirx.Var("t", expr.ty)
            out.append(tirx.Bind(var, value))
            return var
        place = self._place(expr)
        out += [tirx.AllocBuffer(place), tirx.BufferStore(place, value, [i64(0)])]
        return tirx.BufferLoad(place, [i64(0)])

    def _place(self, expr: Expr) -> Buffer:
        place = temporary(dtype_of(expr))
        self._places.add(place)
        return place
