"""What the kernels of recurrent layers share: their loops over time and their matrix products."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import te, tirx
from tvm.tirx import Buffer, BufferLoad, BufferStore, Expr, ForKind, IfThenElse, Stmt

from rten_aot.dialect.failure import Failure, fail
from rten_aot.dialect.lets import vector_store
from rten_aot.dialect.loops import Cell, contiguous, int64, loop, parallel, seq, static, vector

LANES = 16
PARALLEL_HIDDEN = 512
"""From so many hidden units on, threads gain more from sharing a step than waking them costs."""


def blocks_of(hidden: int) -> int:
    """The number of blocks that hold ``hidden`` units."""
    return -(-hidden // LANES)


class Step:
    """Where a step is: in which direction and batch entry, at what time, in which half of ``h``."""

    def __init__(self, direction: Expr, batch: Expr, time: Expr, count: Expr) -> None:
        self.direction = direction
        self.batch = batch
        self.time = time
        self.now = tirx.floormod(count, int64(2))
        self.next = tirx.floormod(count + int64(1), int64(2))

    def place(self, unit: Expr, lane: Expr) -> list[Expr]:
        """Where a state of shape [directions, batch, blocks * LANES] holds a hidden unit."""
        return [self.direction, self.batch, unit * int64(LANES) + lane]


class Walk:
    """The loops over directions, batch entries and time that all recurrent layers share."""

    def __init__(
        self, projected: te.Tensor, initial_h: te.Tensor, hidden: int, reverse: bool, node: int
    ) -> None:
        self.steps = projected.shape[0]
        self.directions, self.batch = initial_h.shape[:2]
        self.hidden = hidden
        self.blocks = int64(blocks_of(hidden))
        self.state = [self.directions, self.batch, int64(hidden)]
        self.padded = [self.directions, self.batch, self.blocks * int64(LANES)]
        self.two_states = [int64(2), *self.padded]
        self.outputs = [self.steps, *self.state]
        self._reverse = reverse
        self._node = node

    def row(self, body: Callable[[Expr], Stmt]) -> Stmt:
        """``body`` for each hidden unit."""
        return contiguous(self.hidden, LANES, body)

    def lanes(self, body: Callable[[Expr], Stmt]) -> Stmt:
        """``body`` for each unit of a block."""
        return vector(LANES, body)

    def assign(self, value: Callable[[Expr], Expr], store: Callable[[Expr, Expr], Stmt]) -> Stmt:
        """``store(lane, value(lane))`` for each unit of a block."""
        return vector_store(LANES, value, store)

    def sums(self, name: str, gates: int) -> Accumulators:
        """Sums for the gates of a block."""
        return Accumulators(self, name, gates)

    def spread(self, rows: Expr, work: Expr, body: Callable[[Expr], Stmt]) -> Stmt:
        """``body`` for each direction and batch entry, shared out to threads."""
        return parallel(rows, work, body)

    def wait(self) -> Stmt | None:
        """What lets threads see what the others of a row have stored, if there are any."""
        return None

    def column(self, at: Step, unit: Expr, gates: int) -> Expr:
        """Where ``projected`` holds the first gate of a block."""
        return (at.direction * self.blocks + unit) * int64(gates * LANES)

    def load_state(self, first_h: Buffer, h: Buffer, d: Expr, b: Expr) -> Stmt:
        """Copy an initial state to the half of ``h`` that the first step reads."""
        return self.row(lambda i: BufferStore(h, first_h[d, b, i], [int64(0), d, b, i]))

    def save_state(self, h: Buffer, y_h: Buffer, d: Expr, b: Expr, last: Expr) -> Stmt:
        """Copy the half of ``h`` that the last step wrote to the output."""
        return self.row(lambda i: BufferStore(y_h, h[last, d, b, i], [d, b, i]))

    def units(self, body: Callable[[Expr], Stmt]) -> Stmt:
        """``body`` for each block of hidden units, which threads share if there is much to do.

        Where several rows can go to several threads, they do that instead (``run``).
        """
        alone = static(self.directions * self.batch) == 1
        large = self.hidden >= PARALLEL_HIDDEN
        kind = ForKind.PARALLEL if alone and large else ForKind.SERIAL
        return loop(self.blocks, body, kind=kind, name="unit")

    def emit(self, y: Buffer, h: Buffer, at: Step) -> Stmt:
        """Copy the new state to the output."""
        d, b = at.direction, at.batch
        return self.row(lambda i: BufferStore(y, h[at.next, d, b, i], [at.time, d, b, i]))

    def run(
        self,
        y: Buffer,
        lengths: Sequence[Buffer],
        begin: Callable[[Expr, Expr], Stmt],
        step: Callable[[Step], Stmt],
        end: Callable[[Expr, Expr, Expr], Stmt],
    ) -> Stmt:
        """The whole kernel: for each direction and batch entry begin, all its steps, end."""
        zero = tirx.const(0, "float32")

        def count(b: Expr, length: Cell) -> Stmt:
            if not lengths:
                return length.set(self.steps)
            given = BufferLoad(lengths[0], [b])
            wide = tirx.Cast("int64", given)
            ok = tirx.And(wide >= int64(0), wide <= self.steps)
            wrong = tirx.Evaluate(fail(Failure.INDEX_OUT_OF_RANGE, self._node, given))
            return IfThenElse(ok, length.set(wide), seq(wrong, length.set(int64(0))))

        def one(row: Expr) -> Stmt:
            length = Cell("length")
            d, b = tirx.floordiv(row, self.batch), tirx.floormod(row, self.batch)
            backward = tirx.Or(tirx.const(self._reverse, "bool"), d > int64(0))

            def at(s: Expr) -> Stmt:
                time = tirx.Select(backward, length.get() - int64(1) - s, s)
                blank = self.row(lambda i: BufferStore(y, zero, [s, d, b, i]))
                inside = step(Step(d, b, time, s))
                return IfThenElse(s < length.get(), inside, blank) if lengths else inside

            return seq(
                length.declare,
                count(b, length),
                begin(d, b),
                self.wait(),
                loop(self.steps, at, name="step"),
                end(d, b, tirx.floormod(length.get(), int64(2))),
            )

        rows = self.directions * self.batch
        work = rows * self.steps * int64(self.hidden * self.hidden)
        return self.spread(rows, work, one)


class Accumulators:
    """One vector of LANES sums for each gate, in registers.

    Few gates get several vectors each, which take turns, so that additions need not wait for each
    other.
    """

    lanes = LANES
    """Elements of a sum."""

    def __init__(self, walk: Walk, name: str, gates: int) -> None:
        self._walk = walk
        self._gates = gates
        self._ways = max(1, 4 // gates)
        self._cell = Cell(name, "float32", gates * self._ways * self.lanes)
        self.declare = self._cell.declare

    def place(self, gate: int, lane: Expr) -> Expr:
        """Where the sum of a gate is."""
        return int64(gate * LANES) + lane

    def get(self, gate: int, lane: Expr) -> Expr:
        """The sum of a gate."""
        return self._cell.get(self.place(gate, lane))

    def set(self, gate: int, lane: Expr, value: Expr) -> Stmt:
        """Assign to one element of a gate."""
        return self._cell.set(value, self.place(gate, lane))

    def replace(self, gate: int, value: Callable[[Expr], Expr]) -> Stmt:
        """Put ``value(lane)`` in the place of a gate's sums."""
        return self._walk.assign(value, lambda v, new: self.set(gate, v, new))

    def start(self, value: Callable[[Expr, Expr], Expr]) -> Stmt:
        """Begin with ``value(offset of the gate, lane)``."""
        return seq(
            *[
                self._walk.lanes(lambda v, g=g: self.set(g, v, value(int64(g * LANES), v)))
                for g in range(self._gates)
            ]
        )

    def add_product(
        self,
        size: int,
        factor: Callable[[Expr], Expr],
        weight: Callable[[Expr, Expr, Expr], Expr],
    ) -> Stmt:
        """Add the sum over k < size of ``factor(k) * weight(k, offset of the gate, lane)``."""
        zero = tirx.const(0, "float32")
        more = range(self._gates, self._gates * self._ways)

        def add(k: Expr, way: int) -> Stmt:
            return seq(
                *[
                    self._walk.lanes(
                        lambda v, g=g: self.set(
                            way * self._gates + g,
                            v,
                            self.get(way * self._gates + g, v)
                            + factor(k) * weight(k, int64(g * LANES), v),
                        ),
                    )
                    for g in range(self._gates)
                ]
            )

        def round_(i: Expr) -> Stmt:
            return seq(*[add(i * int64(self._ways) + int64(w), w) for w in range(self._ways)])

        whole = size // self._ways
        rest = range(whole * self._ways, size)
        return seq(
            *[self._walk.lanes(lambda v, a=a: self.set(a, v, zero)) for a in more],
            loop(whole, round_, name="k"),
            *[add(int64(k), 0) for k in rest],
            *[
                self._walk.lanes(
                    lambda v, a=a: self.set(
                        a % self._gates, v, self.get(a % self._gates, v) + self.get(a, v)
                    ),
                )
                for a in more
            ],
        )
