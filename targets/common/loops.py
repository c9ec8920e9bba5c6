"""Builders for loops written directly as TIR: loops, register tiles, main and tail parts.

A ``Loops`` object knows the ranges of all loop variables it made, so that ``simplify`` can use
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import tvm
from tvm import sym, tirx
from tvm.ir import Expr
from tvm.tirx import ForKind, Stmt

from rten_aot.targets.common.expr import Buffer, constant_int, dtype_of, i64, walk
from rten_aot.targets.common.stmts import TILE_BYTES, is_noop, vectorised

Body: TypeAlias = Callable[[Expr], Stmt | Sequence[Stmt]]
"""Makes the body of a loop from its variable (an int64 expression)."""

_SIZE_LIMIT = 1 << 40
"""Upper bound that the simplifier may assume for symbolic sizes."""


def seq(*parts: Stmt | Sequence[Stmt] | None) -> Stmt:
    """Statements one after the other; lists are flattened, None and no-ops left out."""
    flat: list[Stmt] = []
    for part in parts:
        if part is None:
            continue
        for stmt in [part] if isinstance(part, Stmt) else part:
            if isinstance(stmt, tirx.SeqStmt):
                flat.extend(stmt.seq)
            elif not is_noop(stmt):
                flat.append(stmt)
    if not flat:
        return tirx.Evaluate(tirx.IntImm("int32", 0))
    return flat[0] if len(flat) == 1 else tirx.SeqStmt(flat)


def store(buffer: Buffer, value: Expr, indices: Sequence[Expr | int]) -> Stmt:
    """``buffer[indices] = value``."""
    return tirx.BufferStore(buffer, value, [i64(i) for i in indices])


def load(buffer: Buffer, indices: Sequence[Expr | int]) -> Expr:
    """``buffer[indices]``."""
    return tirx.BufferLoad(buffer, [i64(i) for i in indices])


def when(condition: Expr, then: Stmt, otherwise: Stmt | None = None) -> Stmt:
    """``if condition: then else: otherwise``, decided here if the condition is constant."""
    known = constant_int(condition)
    if known is not None:
        return then if known else seq(otherwise)
    return tirx.IfThenElse(condition, then, otherwise)


def tile(shape: Sequence[int], dtype: str, name: str = "acc") -> Buffer:
    """A buffer that lives in registers; put ``tirx.AllocBuffer(tile)`` before its first use.

    Index it with constants and the variable of a vectorised loop only.
    """
    buffer = tirx.decl_buffer(list(shape), dtype, name=name, scope="global")
    count = 1
    for extent in shape:
        count *= extent
    bits = int("".join(c for c in dtype if c.isdigit()) or 8)
    if count * bits // 8 > TILE_BYTES:
        raise ValueError(
            f"register tile {list(shape)} of {dtype} is larger than {TILE_BYTES} bytes"
        )
    return buffer


def zero(dtype: str) -> Expr:
    """Zero of the type."""
    return tirx.const(0, dtype)


class Loops:
    """Makes loops and remembers the ranges of their variables."""

    def __init__(self, sizes: Sequence[tirx.Var] = ()) -> None:
        """``sizes`` are the symbolic sizes of the function: known not to be negative."""
        self.analyzer = sym.Analyzer()
        self._made: set[tirx.Var] = set()
        for size in sizes:
            self.analyzer.bind(size, tvm.ir.Range(tirx.IntImm("int64", 0), i64(_SIZE_LIMIT)))

    def simplify(self, expr: Expr) -> Expr:
        """The integer or boolean expression in its simplest known form."""
        if isinstance(expr, (tirx.Var, tirx.IntImm)):
            return expr
        return self.analyzer.simplify(expr)

    def proves(self, condition: Expr) -> bool:
        """Whether the condition surely holds."""
        return constant_int(self.simplify(condition)) == 1

    def var(self, name: str, extent: Expr | int) -> tirx.Var:
        """A new int64 variable in [0, extent)."""
        var = tirx.Var(name, "int64")
        self._made.add(var)
        known = constant_int(extent)
        if known is None or known > 0:
            self.analyzer.bind(var, tvm.ir.Range(i64(0), i64(extent)))
        return var

    def is_size(self, var: tirx.Var) -> bool:
        """Whether the variable is a size of the run: an int64 one that belongs to no loop."""
        return dtype_of(var) == "int64" and var not in self._made

    def loop(
        self,
        name: str,
        extent: Expr | int,
        body: Body,
        kind: ForKind = ForKind.SERIAL,
        annotations: Mapping[str, object] | None = None,
    ) -> Stmt:
        """``for name in range(extent): body(name)``.

        No statement at all for extent 0, no loop for extent 1.
        """
        extent = extent if isinstance(extent, int) else self.simplify(extent)
        known = constant_int(extent)
        if known is not None and known <= 0:
            return seq()
        if known == 1:
            return seq(body(i64(0)))
        var = self.var(name, extent)
        if kind == ForKind.VECTORIZED:
            assert known is not None
            return vectorised(var, known, seq(body(var)))
        return tirx.For(
            var, i64(0), i64(extent), kind, seq(body(var)), annotations=dict(annotations or {})
        )

    def serial(self, name: str, extent: Expr | int, body: Body) -> Stmt:
        """A plain loop."""
        return self.loop(name, extent, body)

    def parallel(self, name: str, extent: Expr | int, body: Body) -> Stmt:
        """A loop whose iterations are shared out to the threads. Not to be nested."""
        return self.loop(name, extent, body, ForKind.PARALLEL)

    def unrolled(self, name: str, extent: int, body: Body) -> Stmt:
        """A loop that TVM unrolls (register tiles must be indexed by constants)."""
        return self.loop(name, extent, body, ForKind.UNROLLED)

    def vector(self, name: str, lanes: int, body: Body) -> Stmt:
        """A loop that becomes one vector operation per statement; ``lanes`` is constant."""
        return self.loop(name, lanes, body, ForKind.VECTORIZED)

    def vectors(self, name: str, count: int, lanes: int, body: Body) -> list[Stmt]:
        """``body(j)`` for j in [0, count): whole vectors, then the rest as a shorter vector."""
        whole, rest = divmod(count, lanes)
        parts = [
            self.vector(name, lanes, lambda v, c=c: body(i64(c * lanes) + v if c else v))
            for c in range(whole)
        ]
        if rest:
            base = i64(whole * lanes)
            parts.append(self.vector(name, rest, lambda v: body(base + v if whole else v)))
        return parts

    def blocked(
        self,
        name: str,
        extent: Expr | int,
        block: int,
        main: Body,
        tail: Callable[[Expr, Expr], Stmt | Sequence[Stmt]],
        kind: ForKind = ForKind.SERIAL,
    ) -> Stmt:
        """``main(start)`` for every whole block, then ``tail(start, rest)`` if 0 < rest < block.

        ``rest`` is constant where the extent is; else it is an expression.
        """
        extent = i64(extent) if isinstance(extent, int) else self.simplify(extent)
        whole = self.simplify(tirx.floordiv(extent, i64(block)))
        rest = self.simplify(tirx.floormod(extent, i64(block)))
        first = self.loop(name, whole, lambda b: main(self.simplify(b * i64(block))), kind)
        if constant_int(rest) == 0:
            return first
        start = self.simplify(whole * i64(block))
        return seq(first, when(self.simplify(rest > i64(0)), seq(tail(start, rest))))

    def switch(
        self, value: Expr, cases: Sequence[int], body: Callable[[int], Stmt | Sequence[Stmt]]
    ) -> Stmt:
        """``body(case)`` for the one of ``cases`` that ``value`` equals, if any."""
        known = constant_int(value)
        if known is not None:
            return seq(body(known)) if known in cases else seq()
        result: Stmt | None = None
        for case in reversed(cases):
            result = tirx.IfThenElse(tirx.EQ(value, i64(case)), seq(body(case)), result)
        return seq(result)


def split_exactly(extent: int, rows: int) -> list[tuple[int, int]]:
    """Tiles that cover ``extent``: pairs of the rows of a tile and how many such tiles.

    Only tiles of ``rows`` and ``rows - 1`` rows if that is possible, else whole tiles and one
    shorter one.
    """
    for shorter in range(rows):
        left = extent - shorter * (rows - 1)
        if left >= 0 and left % rows == 0:
            parts = [(rows, left // rows), (rows - 1, shorter)]
            return [(r, n) for r, n in parts if r and n]
    parts = [(rows, extent // rows), (extent % rows, 1)]
    return [(r, n) for r, n in parts if r and n]


def size_vars(buffers: Sequence[Buffer]) -> list[tirx.Var]:
    """The variables that occur in the shapes, each once, in order."""
    shapes = [extent for buffer in buffers for extent in buffer.ty.shape]
    return [e for e in walk(shapes) if isinstance(e, tirx.Var)]


__all__ = [
    "Body",
    "Loops",
    "constant_int",
    "dtype_of",
    "i64",
    "is_noop",
    "load",
    "seq",
    "size_vars",
    "split_exactly",
    "store",
    "tile",
    "when",
    "zero",
]
