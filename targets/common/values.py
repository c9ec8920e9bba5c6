"""Computes elements of intermediate buffers where they are needed, instead of storing them.

``Values.load`` gives the expression of one element; ``sharing`` turns expressions into statements
that compute every common part once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import tvm
from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad

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
        """``expr`` with axes replaced and loads resolved.

        Loads of buffers in ``known`` become that value whatever their indices.
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
    """``expr`` with variables replaced and indices simplified.

    Branches that conditions on variables rule out are dropped. ``resolve`` replaces loads (by
    default only their indices change).
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


def guards(values: Sequence[Expr]) -> list[Expr]:
    """The conditions of if_then_else, under which memory is accessed."""
    return [e.args[0] for e in walk(values) if is_call(e, "if_then_else")]
