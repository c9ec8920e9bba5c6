"""Computes elements of intermediate buffers where they are needed, instead of storing them.

``Values.load`` gives the expression of one element; ``share`` turns expressions into statements that
compute every common part once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import tvm
from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad
from tvm.tirx import Stmt

from rten_aot.targets.common.expr import (
    Buffer,
    Rewriter,
    children,
    constant_int,
    dtype_of,
    i64,
    identity,
    is_call,
    loads,
    rebuild,
    walk,
)
from rten_aot.targets.common.loops import Loops
from rten_aot.targets.common.stages import Kernel, Stage
from rten_aot.targets.common.stmts import temporary


class Interner:
    """Numbers expressions: equal structure, equal number."""

    def __init__(self) -> None:
        self.nodes: list[Expr] = []
        self.operands: list[tuple[int, ...]] = []
        self._by_key: dict[tuple[object, ...], int] = {}
        self._by_handle: dict[int, tuple[Expr, int]] = {}

    def number(self, expr: Expr) -> int:
        """The number of the expression; ``nodes`` and ``operands`` are indexed by it."""
        handle = identity(expr)
        found = self._by_handle.get(handle)
        if found is not None:
            return found[1]
        operands = tuple(self.number(c) for c in children(expr))
        key = (*_identity(expr), *operands)
        index = self._by_key.get(key)
        if index is None:
            index = len(self.nodes)
            self._by_key[key] = index
            self.nodes.append(expr)
            self.operands.append(operands)
        self._by_handle[handle] = (expr, index)
        return index


def _identity(expr: Expr) -> tuple[object, ...]:
    kind = type(expr).__name__
    if isinstance(expr, tirx.Var):
        return (kind, hash(expr))
    if isinstance(expr, tirx.IntImm):
        return (kind, str(expr.ty), int(expr.value))
    if isinstance(expr, tirx.FloatImm):
        return (kind, str(expr.ty), struct.pack("<d", float(expr.value)))
    if isinstance(expr, tvm.ir.StringImm):
        return (kind, str(expr.value))
    if isinstance(expr, TensorLoad):
        return (kind, hash(expr.source))
    if isinstance(expr, Call):
        return (kind, hash(expr.op), hash(expr.attrs), str(expr.ty))
    if isinstance(expr, (tirx.Cast, tirx.Broadcast, tirx.Ramp)):
        return (kind, str(expr.ty))
    return (kind,)


class Values:
    """Elements of the buffers of a kernel.

    A buffer *in memory* (a parameter, a scratch buffer, a register tile) is loaded from; any other
    one must come from a spatial stage, whose expression is put in the place of the load.
    """

    def __init__(self, kernel: Kernel, loops: Loops) -> None:
        self._kernel = kernel
        self._loops = loops
        self._memory: dict[Buffer, Buffer] = {b: b for b in kernel.inputs}
        self._interner = Interner()
        self._known: dict[tuple[Buffer, tuple[int, ...]], Expr] = {}

    def in_memory(self, buffer: Buffer) -> bool:
        """Whether loads of the buffer stay loads."""
        return buffer in self._memory

    def put_in_memory(self, buffer: Buffer, storage: Buffer | None = None) -> None:
        """From now on loads of ``buffer`` read ``storage`` (by default the buffer itself)."""
        self._memory[buffer] = buffer if storage is None else storage
        self._known.clear()

    @contextmanager
    def computed(self, buffers: Sequence[Buffer]) -> Iterator[None]:
        """Meanwhile elements of the buffers are computed, though they are in memory."""
        kept = {b: self._memory.pop(b) for b in buffers if b in self._memory}
        self._known.clear()
        try:
            yield
        finally:
            self._memory.update(kept)
            self._known.clear()

    def ready(self, buffer: Buffer) -> bool:
        """Whether elements of the buffer can be computed now: all it depends on is in memory."""
        if buffer in self._memory:
            return True
        stage = self._kernel.producer(buffer)
        return (
            stage is not None and stage.reducer is None and all(self.ready(b) for b in stage.reads)
        )

    def load(self, buffer: Buffer, indices: Sequence[Expr | int]) -> Expr:
        """``buffer[indices]`` as an expression; shares nothing yet (see ``share``)."""
        where = [self._loops.simplify(i64(i)) for i in indices]
        if buffer in self._memory:
            return tirx.BufferLoad(self._memory[buffer], where)
        key = (buffer, tuple(self._interner.number(i) for i in where))
        known = self._known.get(key)
        if known is None:
            stage = self._kernel.producer(buffer)
            if stage is None or stage.reducer is not None:
                raise ValueError(f"buffer {buffer.name} has not been computed yet")
            known = self._known[key] = self.value(stage, where)
        return known

    def value(self, stage: Stage, indices: Sequence[Expr], reduce: Sequence[Expr] = ()) -> Expr:
        """What ``stage`` stores at ``indices``; for a reduction stage its term at ``reduce``."""
        axes = [a.var for a in (*stage.spatial, *stage.reduce)]
        return self.expr(stage.value, dict(zip(axes, (*indices, *reduce), strict=True)))

    def expr(
        self,
        expr: Expr,
        axes: Mapping[tirx.Var, Expr],
        known: Mapping[Buffer, Expr] | None = None,
    ) -> Expr:
        """``expr`` with axes replaced and loads resolved; loads of buffers in ``known`` become that
        value whatever their indices.
        """

        def resolve(load: TensorLoad, rewrite: Rewriter) -> Expr:
            if known is not None and load.source in known:
                return known[load.source]
            return self.load(load.source, [rewrite(i) for i in load.indices])

        return specialise(expr, axes, self._loops, resolve)


def specialise(
    expr: Expr,
    mapping: Mapping[tirx.Var, Expr],
    loops: Loops,
    resolve: Callable[[TensorLoad, Rewriter], Expr] | None = None,
) -> Expr:
    """``expr`` with variables replaced, indices simplified, and the branches dropped that conditions on
    variables rule out. ``resolve`` replaces loads (by default only their indices change).
    """

    def replace(node: Expr) -> Expr | None:
        if isinstance(node, tirx.Var):
            return mapping.get(node)
        if isinstance(node, TensorLoad):
            if resolve is not None:
                return resolve(node, rewrite)
            return tirx.BufferLoad(node.source, [loops.simplify(rewrite(i)) for i in node.indices])
        if isinstance(node, tirx.Select):
            return choose(node, node.condition, node.true_value, node.false_value)
        if is_call(node, "if_then_else"):
            return choose(node, *node.args)
        return None

    def choose(node: Expr, condition: Expr, yes: Expr, no: Expr) -> Expr | None:
        decided = rewrite(condition)
        if loads(decided) or not _is_integral(decided):
            return None
        decided = loops.simplify(decided)
        known = constant_int(decided)
        if known is not None:
            return rewrite(yes if known else no)
        return rebuild(node, [decided, rewrite(yes), rewrite(no)])

    rewrite = Rewriter(replace)
    return rewrite(expr)


def _is_integral(expr: Expr) -> bool:
    """Whether no floating-point value takes part (the simplifier knows nothing of NaN)."""
    return not any(
        dtype_of(c).startswith(("float", "bfloat")) or not _is_integral(c) for c in children(expr)
    )


def has_effects(*exprs: Expr) -> bool:
    """Whether evaluation may record a failure, so that its place and number of times matter."""
    return any(is_call(e, "call_extern") for e in walk(exprs))


def guards(values: Sequence[Expr]) -> list[Expr]:
    """The conditions of if_then_else, under which memory is accessed."""
    return [e.args[0] for e in walk(values) if is_call(e, "if_then_else")]


def share(values: Sequence[Expr]) -> tuple[list[Stmt], list[Expr]]:
    """Statements that bind every part which the values use more than once, and the values in terms
    of the bound variables.

    Parts that are evaluated only under a condition (in a branch of if_then_else) stay there. Index
    arithmetic is left in place: the code generator recognises vector loads by its form.
    """
    _, binds, results = share_around(values, None)
    return binds, results


def share_around(
    values: Sequence[Expr], inner: Collection[tirx.Var] | None
) -> tuple[list[Stmt], list[Stmt], list[Expr]]:
    """Like ``share`` for values in a loop over the variables ``inner``: the first list binds what
    does not depend on them and is to stand before the loop, which must run at least once.
    """
    return _Sharing(inner).run(values)


class _Sharing:
    def __init__(self, inner: Collection[tirx.Var] | None) -> None:
        self._interner = Interner()
        self._inner = inner
        self._uses: dict[int, int] = {}
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
        for child in self._interner.operands[node]:
            self._uses[child] = self._uses.get(child, 0) + 1
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
            known = self._varies[node] = (
                not (isinstance(expr, tirx.Var) and expr in self._inner)
                and not has_effects(expr)
                and all(self._is_outer(c) for c in self._interner.operands[node])
            )
        return known

    def _worth_binding(self, node: int) -> bool:
        if not self._interner.operands[node] or not self._is_data(node) or self._is_truth(node):
            return False
        return self._uses[node] > 1 or (node in self._strict and self._is_outer(node))

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


def computed_store(buffer: Buffer, value: Expr, indices: Sequence[Expr | int]) -> list[Stmt]:
    """``buffer[indices] = value`` with the common parts of ``value`` computed once."""
    binds, (result,) = share([value])
    return [*binds, tirx.BufferStore(buffer, result, [i64(i) for i in indices])]
