"""Register tiles of products: sums of ``left * right`` over a block of rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Expr, TensorLoad
from tvm.tirx import Stmt

from rten_aot.targets.common.epilogue import Epilogue
from rten_aot.targets.common.expr import (
    Buffer,
    children,
    constant_int,
    element_bits,
    free_vars,
    i64,
    loads,
    same,
)
from rten_aot.targets.common.halves import stored_load
from rten_aot.targets.common.loops import Loops, load, seq, store, tile, zero
from rten_aot.targets.common.stages import Axis
from rten_aot.targets.common.stmts import TILE_BYTES

Reduce = Sequence[tuple[str, Expr | int]]
"""Name and extent of each axis of the sum, outermost first."""
Left = Callable[[int, Sequence[Expr]], Expr]
"""The factor of a row (counted from 0 in the tile) at a point of the sum."""
Right = Callable[[Sequence[Expr], Expr], Expr]
"""The factor of a column of the tile at a point of the sum."""
Finish = Callable[[Expr, Callable[[Expr], Expr]], Stmt]
"""What to do with a finished row: its number in the tile, and its sums by column."""

_LARGE = 1 << 40
"""More than any size or position that a name stands for."""
_CHAINS = 8
"""Independent additions that keep the multipliers busy: latency times throughput."""

CACHE_LINE = 64
"""Bytes that a fetch brings into the cache."""
_FOR_READING = (0, 2, 1)
"""Of LLVM's prefetch: to be read, into the level-2 cache, data."""
_CSDB = 20
"""Of LLVM's AArch64 hints one that its schedulers move nothing past.

Processors that start instructions in order take it for a NOP: it ends speculation on values (Arm
Architecture Reference Manual, CSDB).
"""


@dataclass(frozen=True)
class Shape:
    """A register tile."""

    rows: int
    columns: int
    lanes: int
    terms: int = 1
    """Terms of a sum whose left factors are loaded as one vector, where they lie side by side."""
    groups_loads: bool = False
    """See ``Machine.groups_loads``."""
    dtype: str = "float32"


def product_tile(
    loops: Loops,
    shape: Shape,
    reduce: Reduce,
    left: Left,
    right: Right,
    finish: Finish,
    ahead: Right | None = None,
) -> Stmt:
    """Computes one tile. Sums are kept in registers; ``finish`` gets the rows one after the other.

    Small tiles split the sum into several chains. What ``ahead`` loads is fetched into the cache
    meanwhile.
    """
    vectors = shape.columns // shape.lanes
    chains = max(1, min(4, _CHAINS // max(1, shape.rows * vectors)))
    inner = constant_int(reduce[-1][1])
    if inner is not None and inner < 4 * chains:
        chains = 1
    terms = shape.terms if _runs_along(loops, reduce, left, shape.terms) else 1
    parts = _parts(shape)
    sums = [[tile([n, shape.columns], shape.dtype) for n in parts] for _ in range(chains)]

    def each_vector(body: Callable[[Expr], Stmt]) -> list[Stmt]:
        return loops.vectors("v", shape.columns, shape.lanes, body)

    def products(
        chain: int, own: Callable[[int], Expr], other: Callable[[Expr], Expr]
    ) -> list[list[Stmt]]:
        """The additions of a term, row by row."""
        result = []
        for row, (part, r) in enumerate(_rows(parts)):
            acc, factor = sums[chain][part], own(row)
            result.append(
                each_vector(
                    lambda j, acc=acc, r=r, factor=factor: store(
                        acc, load(acc, [r, j]) + factor * other(j), [r, j]
                    )
                )
            )
        return result

    def update(chain: int, ks: Sequence[Expr]) -> list[Stmt]:
        stmts = [] if ahead is None else _fetch(ahead, [ks], shape)
        for row in products(chain, lambda row: left(row, ks), lambda j: right(ks, j)):
            stmts += row
        return stmts

    def several(points: Sequence[Sequence[Expr]]) -> list[Stmt]:
        """The terms at ``points``, one after the other in each chain."""
        if terms == 1:
            return [stmt for chain, ks in enumerate(points) for stmt in update(chain, ks)]
        lefts = [tirx.Var("left", f"{shape.dtype}x{terms}") for _ in range(shape.rows)]
        rights = tile([len(points), shape.columns], shape.dtype, "right")
        loaded: list[Stmt] = [
            tirx.Bind(var, _vector(left(row, points[0]), terms)) for row, var in enumerate(lefts)
        ]
        loaded.append(tirx.AllocBuffer(rights))
        for i, ks in enumerate(points):
            loaded += each_vector(lambda j, i=i, ks=ks: store(rights, right(ks, j), [i, j]))
        added: list[Stmt] = []
        for i in range(len(points)):
            lane = tirx.IntImm("int32", i)
            by_row = products(
                i % chains,
                lambda row, lane=lane: tirx.Shuffle([lefts[row]], [lane]),
                lambda j, i=i: load(rights, [i, j]),
            )
            # Column by column: LLVM keeps to this order, and so loads right factors early.
            added += [stmt for column in zip(*by_row, strict=True) for stmt in column]
        # Fetches come last, since LLVM moves no load past one.
        added += [] if ahead is None else _fetch(ahead, points, shape)
        return [*loaded, *_barrier(shape), *added, *_barrier(shape)]

    body: list[Stmt] = []
    for group in sums:
        for acc in group:
            body.append(tirx.AllocBuffer(acc))
            for r in range(constant_int(acc.ty.shape[0]) or 0):
                body += each_vector(lambda j, acc=acc, r=r: store(acc, zero(shape.dtype), [r, j]))
    body.append(_sum_loops(loops, reduce, max(chains, terms), several, lambda ks: update(0, ks)))
    first = 0
    for part, count in enumerate(parts):
        body += _finish_part(loops, shape, [g[part] for g in sums], first, finish)
        first += count
    return seq(*body)


def _runs_along(loops: Loops, reduce: Reduce, left: Left, terms: int) -> bool:
    """Whether each row's left factors of so many consecutive terms are a vector in memory."""
    known = constant_int(reduce[-1][1])
    if terms == 1 or (known is not None and known < terms):
        return False
    *outer, k = (loops.var(name, extent) for name, extent in reduce)
    one, other = left(0, (*outer, k)), left(0, (*outer, k + i64(1)))
    if not isinstance(one, TensorLoad) or not isinstance(other, TensorLoad):
        return False
    steps = [loops.simplify(b - a) for a, b in zip(one.indices, other.indices, strict=True)]
    return [constant_int(step) for step in steps] == [0] * (len(steps) - 1) + [1]


def _vector(first: TensorLoad, lanes: int) -> Expr:
    """What ``first`` loads and what lies behind it."""
    *outer, last = first.indices
    return tirx.BufferLoad(first.source, [*outer, tirx.Ramp(last, i64(1), lanes)])


def _barrier(shape: Shape) -> list[Stmt]:
    """What keeps loads on one side and multiplications on the other."""
    if not shape.groups_loads:
        return []
    hint = tirx.call_llvm_intrin("void", "llvm.aarch64.hint", tirx.IntImm("int32", _CSDB))
    return [tirx.Evaluate(hint)]


def _fetch(ahead: Right, points: Sequence[Sequence[Expr]], shape: Shape) -> list[Stmt]:
    """Hints to the processor, which are free to point anywhere; each cache line once."""

    def place(ks: Sequence[Expr], j: int) -> TensorLoad:
        found = stored_load(ahead(ks, i64(j)))
        assert found is not None, "weights are loaded from memory"
        return found

    source = place(points[0], 0).source
    in_line = CACHE_LINE * 8 // element_bits(str(source.ty.dtype))
    pitch = constant_int(source.ty.shape[-1]) or shape.columns
    lines: dict[int, Expr] = {}
    for i, ks in enumerate(points):
        for j in range(0, shape.columns, in_line):
            lines.setdefault((i * pitch + j) // in_line, tirx.address_of(place(ks, j)))
    return [
        tirx.Evaluate(tirx.call_intrin("void", "tirx.prefetch", address, *_FOR_READING))
        for address in lines.values()
    ]


def _parts(shape: Shape) -> list[int]:
    """Rows of the buffers that a tile consists of, each small enough to live in registers."""
    most = max(1, TILE_BYTES // (shape.columns * 4))
    count = -(-shape.rows // most)
    return [shape.rows // count + (i < shape.rows % count) for i in range(count)]


def _rows(parts: Sequence[int]) -> Iterable[tuple[int, int]]:
    return [(part, r) for part, count in enumerate(parts) for r in range(count)]


def _sum_loops(
    loops: Loops,
    reduce: Reduce,
    step: int,
    several: Callable[[Sequence[Sequence[Expr]]], list[Stmt]],
    one: Callable[[Sequence[Expr]], list[Stmt]],
) -> Stmt:
    """Loops over the sum: ``several`` takes ``step`` terms at once, ``one`` those that are left."""

    def nest(axes: Reduce, outer: tuple[Expr, ...]) -> Stmt:
        (name, extent), *rest = axes
        if rest:
            return loops.serial(name, extent, lambda k: nest(rest, (*outer, k)))
        if step == 1:
            return loops.serial(name, extent, lambda k: one((*outer, k)))
        whole = loops.simplify(tirx.floordiv(i64(extent), i64(step)))
        done = loops.simplify(whole * i64(step))
        main = loops.serial(
            name,
            whole,
            lambda k: several([(*outer, k * i64(step) + i64(i)) for i in range(step)]),
        )
        left = loops.simplify(i64(extent) - done)
        return seq(main, loops.serial(name, left, lambda k: one((*outer, done + k))))

    return nest(reduce, ())


def _finish_part(
    loops: Loops, shape: Shape, chains: Sequence[Buffer], first: int, finish: Finish
) -> list[Stmt]:
    """Moves a part of the sums to memory, so that one copy of ``finish`` serves all its rows."""
    count = constant_int(chains[0].ty.shape[0]) or 0
    result = tile([count, shape.columns], shape.dtype, "done")
    stmts: list[Stmt] = [tirx.AllocBuffer(result)]
    for r in range(count):

        def total(j: Expr, r: int = r) -> Expr:
            value = load(chains[0], [r, j])
            for other in chains[1:]:
                value = value + load(other, [r, j])
            return value

        stmts += loops.vectors(
            "v", shape.columns, shape.lanes, lambda j, r=r, t=total: store(result, t(j), [r, j])
        )
    stmts.append(
        loops.serial(
            "r", count, lambda r: finish(i64(first) + r, lambda j, r=r: load(result, [r, j]))
        )
    )
    return stmts


class Names:
    """Variables for sizes and positions that are used many times.

    TVM's passes look into every expression again wherever it occurs.
    """

    def __init__(self, loops: Loops) -> None:
        self._loops = loops
        self._binds: list[Stmt] = []

    def __call__(self, name: str, value: Expr) -> Expr:
        """``value``, which is not negative, as something small."""
        value = self._loops.simplify(value)
        if isinstance(value, (tirx.IntImm, tirx.Var)):
            return value
        var = self._loops.var(name, _LARGE)
        self._binds.append(tirx.Bind(var, value))
        return var

    def take(self) -> list[Stmt]:
        """The statements that define the names given since the last call."""
        binds, self._binds = self._binds, []
        return binds


class RowIndex:
    """Several leading axes of a result taken as one row index."""

    def __init__(self, loops: Loops, axes: Sequence[Axis], name: Names) -> None:
        self._loops = loops
        self.extents = [a.extent for a in axes]
        self._long = [d for d, e in enumerate(self.extents) if constant_int(e) != 1]
        self._sizes = list(self.extents)
        count: Expr = i64(1)
        for d in self._long:
            self._sizes[d] = name(f"size{d}", self.extents[d])
            count = count * self._sizes[d]
        self.count = name("rows", count)

    def split(self, row: Expr) -> list[Expr]:
        """The index along each axis."""
        result: list[Expr] = [i64(0)] * len(self.extents)
        rest = row
        for d in reversed(self._long):
            if d == self._long[0]:
                result[d] = self._loops.simplify(rest)
                break
            extent = self._sizes[d]
            if constant_int(extent) is not None:
                result[d] = self._loops.simplify(tirx.floormod(rest, extent))
                rest = tirx.floordiv(rest, extent)
            else:  # no sign to look after
                result[d] = tirx.truncmod(rest, extent)
                rest = tirx.truncdiv(rest, extent)
        return result

    def flat(self, row: Expr) -> list[Expr]:
        """Indices that lead to the same place as ``split``'s in buffers that pass ``is_flat``."""
        result: list[Expr] = [i64(0)] * len(self.extents)
        if self._long:
            result[self._long[-1]] = row
        return result

    def is_flat(
        self,
        probes: Sequence[tirx.Var],
        accesses: Iterable[tuple[Buffer, Sequence[Expr]]],
        others: Iterable[Expr] = (),
    ) -> bool:
        """Whether all accesses run through these axes as through a single one.

        The accesses are written in ``probes``, one variable for each axis; ``others`` are
        expressions that must not depend on the axes outside of loads.
        """
        own = {probes[d] for d in self._long}
        if any(_mentions_outside_loads(e, own) for e in others):
            return False
        return all(self._passes(probes, own, b, i) for b, i in accesses)

    def _passes(
        self,
        probes: Sequence[tirx.Var],
        own: set[tirx.Var],
        buffer: Buffer,
        indices: Sequence[Expr],
    ) -> bool:
        if not free_vars(*indices) & own:
            return True
        shape = list(buffer.ty.shape)
        long = [(i, e) for i, e in zip(indices, shape, strict=True) if constant_int(e) != 1]
        if len(long) < len(self._long):
            return False
        for d, (index, extent) in zip(self._long, long, strict=False):
            if not index.same_as(probes[d]) or not same(extent, self.extents[d]):
                return False
        return not free_vars(*(i for i, _ in long[len(self._long) :])) & own


def _mentions_outside_loads(expr: Expr, names: set[tirx.Var]) -> bool:
    if isinstance(expr, tirx.Var):
        return expr in names
    if isinstance(expr, TensorLoad):
        return False
    return any(_mentions_outside_loads(c, names) for c in children(expr))


def epilogue_is_flat(rows: RowIndex, epilogue: Epilogue, dtype: str) -> bool:
    """Whether the epilogue of an anchor ``[*rows, column]`` may be given ``rows.flat`` indices."""
    probes = [tirx.Var(f"q{d}", "int64") for d in range(len(rows.extents))]
    values, places = epilogue.results(tirx.Var("acc", dtype), [*probes, tirx.Var("c", "int64")])
    accesses = [*places, *((x.source, list(x.indices)) for x in loads(*values))]
    return rows.is_flat(probes, accesses, values)


def store_columns(
    loops: Loops,
    shape: Shape,
    valid: Expr | int,
    emit: Callable[[Expr], Sequence[Stmt]],
) -> Stmt:
    """``emit`` for the first ``valid`` columns of a row, in vectors as far as they go."""
    known = constant_int(valid)
    if known is not None:
        return seq(loops.vectors("v", known, shape.lanes, lambda j: seq(emit(j))))
    if shape.lanes == 1:
        return loops.serial("c", valid, lambda j: seq(emit(j)))
    lanes = i64(shape.lanes)
    whole = tirx.truncdiv(i64(valid), lanes)
    return seq(
        loops.serial(
            "cv",
            whole,
            lambda b: loops.vector("v", shape.lanes, lambda v: seq(emit(b * lanes + v))),
        ),
        loops.serial("c", tirx.truncmod(i64(valid), lanes), lambda j: seq(emit(whole * lanes + j))),
    )


def branch(condition: Expr, then: Stmt, otherwise: Stmt | None = None) -> Stmt:
    """A branch whose condition TVM does not look into.

    It would solve it as an inequality for every access to a register tile, which takes seconds.
    """
    known = constant_int(condition)
    if known is not None:
        return then if known else seq(otherwise)
    taken = tirx.Var("taken", "bool")
    return seq(tirx.Bind(taken, condition), tirx.IfThenElse(taken, then, otherwise))
