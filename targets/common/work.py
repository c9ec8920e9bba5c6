"""How much a kernel has to do: operations, and bytes that must be read or written."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from tvm import s_tir, tirx
from tvm.ir import Expr, TensorLoad
from tvm.sym import Analyzer
from tvm.tirx import Stmt

from rten_aot.targets.base import Work
from rten_aot.targets.common.expr import (
    Buffer,
    element_bits,
    free_vars,
    i64,
    is_call,
    loads,
    same,
    substitute,
)

Loops = tuple[tirx.Var, ...]

_REAL_TERMS = "rten.real_terms"
"""Annotation of a stage: which part of its sum's terms, a fraction, the model's operator has."""


def work(func: tirx.PrimFunc) -> Work:
    """The work of a kernel that is not scheduled yet."""
    counter = _Counter()
    total = counter.count(func.body, ())
    analyzer = Analyzer()
    moved = i64(0)
    for param in func.params:
        if isinstance(param.ty, tirx.BufferType):
            moved = moved + _bytes(param, counter, total)
    return Work(analyzer.simplify(total.flops), analyzer.simplify(moved))


@dataclass(frozen=True)
class _Total:
    flops: Expr = field(default_factory=lambda: i64(0))
    loaded: Mapping[Buffer, Expr] = field(default_factory=dict)
    """Elements that the loops load, by operand."""

    def __add__(self, other: _Total) -> _Total:
        return self._merged(other, operator.add)

    def either(self, other: _Total) -> _Total:
        """The larger of two ways."""
        return self._merged(other, _greatest)

    def _merged(self, other: _Total, merge: Callable[[Expr, Expr], Expr]) -> _Total:
        loaded = dict(self.loaded)
        for buffer, count in other.loaded.items():
            loaded[buffer] = merge(loaded[buffer], count) if buffer in loaded else count
        return _Total(merge(self.flops, other.flops), loaded)


class _Counter:
    """Adds up what statements do."""

    def __init__(self) -> None:
        self.written: set[Buffer] = set()
        self._extents: dict[tirx.Var, Expr] = {}
        self._reach: dict[tirx.Var, frozenset[tirx.Var]] = {}
        """Variables that are bound inside loops, and the loops that they depend on."""

    def count(self, stmt: Stmt, loops: Loops) -> _Total:
        """The work of a statement inside the loops over some variables."""
        match stmt:
            case tirx.For():
                self._extents[stmt.loop_var] = _outermost(stmt.extent, loops)
                self._reach[stmt.loop_var] = frozenset([stmt.loop_var])
                return self.count(stmt.body, (*loops, stmt.loop_var))
            case s_tir.SBlockRealize():
                return self._block(stmt, loops)
            case tirx.SeqStmt():
                return functools.reduce(operator.add, (self.count(s, loops) for s in stmt.seq))
            case tirx.IfThenElse():
                then = self.count(stmt.then_case, loops)
                if stmt.else_case is None:
                    return then
                return then.either(self.count(stmt.else_case, loops))
            case tirx.Bind():
                self._bind(stmt.var, stmt.value)
                return self._loads(stmt.value, loops)
            case tirx.BufferStore():
                self.written.add(stmt.buffer)
                terms = self._product(loops) if _adds_product(stmt) else i64(0)
                return _Total(terms * i64(2)) + self._loads(stmt.value, loops)
            case tirx.Evaluate():
                return self._loads(stmt.value, loops)
            case tirx.AttrStmt() | tirx.While():
                return self.count(stmt.body, loops)
        return _Total()

    def _block(self, realize: s_tir.SBlockRealize, loops: Loops) -> _Total:
        block = realize.block
        for axis, value in zip(block.iter_vars, realize.iter_values, strict=True):
            self._bind(axis.var, value)
        total = self.count(block.body, loops)
        real = Fraction(str(block.annotations.get(_REAL_TERMS, "1")))
        terms = tirx.floordiv(total.flops * i64(real.numerator), i64(real.denominator))
        return _Total(terms, total.loaded) if real != 1 else total

    def _bind(self, var: tirx.Var, value: Expr) -> None:
        self._reach[var] = self._loops_of([value])

    def _loops_of(self, exprs: Iterable[Expr]) -> frozenset[tirx.Var]:
        none: frozenset[tirx.Var] = frozenset()
        return none.union(*(self._reach.get(v, none) for v in free_vars(*exprs)))

    def _loads(self, value: Expr, loops: Loops) -> _Total:
        loaded: dict[Buffer, Expr] = {}
        for load in loads(value):
            inner = self._loops_of(load.indices)
            count = self._product([v for v in loops if v in inner])
            loaded[load.source] = loaded[load.source] + count if load.source in loaded else count
        return _Total(i64(0), loaded)

    def _product(self, loops: Iterable[tirx.Var]) -> Expr:
        return functools.reduce(operator.mul, (self._extents[v] for v in loops), i64(1))


def _bytes(param: Buffer, counter: _Counter, total: _Total) -> Expr:
    """What must be moved of an operand or result."""
    size = functools.reduce(operator.mul, map(i64, param.ty.shape), i64(1))
    loaded = total.loaded.get(param)
    if loaded is not None and param not in counter.written:
        size = _least(size, loaded)
    return size * i64(element_bits(str(param.ty.dtype)) // 8)


def _outermost(extent: Expr, loops: Loops) -> Expr:
    """The extent in the first iteration of the loops around, where it depends on them."""
    return substitute(i64(extent), {v: i64(0) for v in loops})


def _adds_product(store: tirx.BufferStore) -> bool:
    """Whether this is ``sum = sum + a * b``."""
    if not isinstance(store.value, tirx.Add):
        return False
    for own, term in ((store.value.a, store.value.b), (store.value.b, store.value.a)):
        is_own = isinstance(own, TensorLoad) and own.source.same_as(store.buffer)
        if is_own and all(map(same, own.indices, store.indices)):
            return isinstance(_bare(term), tirx.Mul)
    return False


def _bare(term: Expr) -> Expr:
    """The term without conversions, and without the condition that it is not padding."""
    while True:
        if isinstance(term, tirx.Cast):
            term = term.value
        elif is_call(term, "if_then_else"):
            term = term.args[1]
        else:
            return term


def _least(a: Expr, b: Expr) -> Expr:
    return a if same(a, b) else tirx.Min(a, b)


def _greatest(a: Expr, b: Expr) -> Expr:
    return a if same(a, b) else tirx.Max(a, b)
