"""Recurrent layers: the part of LSTM and GRU that must go step by step.

The products with the inputs of all steps are one matrix product beforehand; its result is the
operand ``projected``. Hidden units are handled in blocks of ``LANES``, and everything a block needs
lies together:

- ``projected`` is [steps, batch, directions * blocks * gates * LANES];
- recurrent weights are [directions, blocks, hidden, gates * LANES].

Units past the hidden size in the last block are padding and may hold anything finite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import te, tirx
from tvm.tirx import Buffer, BufferLoad, BufferStore, Expr, Stmt

from rten_aot.dialect import vector_math
from rten_aot.dialect.direct import direct
from rten_aot.dialect.lets import vector_store
from rten_aot.dialect.loops import int64, seq, vector
from rten_aot.dialect.recurrence import LANES, Accumulators, Step, Walk
from rten_aot.dialect.registry import Pattern, define


@define("lstm", pattern=Pattern.OPAQUE)
def lstm(
    projected: te.Tensor,
    recurrent: te.Tensor,
    initial_h: te.Tensor,
    initial_c: te.Tensor,
    *lengths: te.Tensor,
    hidden: int,
    reverse: bool,
    node: int,
) -> list[te.Tensor]:
    """The tensors Y, Y_h and Y_c of LSTM and two scratch tensors.

    Y is [steps, directions, batch, hidden], Y_h and Y_c are [directions, batch, hidden]. Gates are
    in the order input, output, forget, cell. The first direction runs from the end if ``reverse``,
    the second one always does. ``lengths`` are the int32 numbers of steps of each batch entry;
    outputs after them are zero.
    """
    walk = Walk(projected, initial_h, hidden, reverse, node)
    states = [[int64(2), *walk.padded], walk.padded]
    shapes = [walk.outputs, walk.state, walk.state, *states]

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        x, weights, first_h, first_c = ins[:4]
        y, y_h, y_c, h, c = outs

        def block(at: Step, unit: Expr) -> Stmt:
            gates = Accumulators("gates", 4)
            start = unit * int64(LANES)
            column = (at.direction * walk.blocks + unit) * int64(4 * LANES)

            def place(v: Expr) -> list[Expr]:
                return [at.direction, at.batch, start + v]

            def new_cell(v: Expr) -> Expr:
                gate = [gates.get(g, v) for g in range(4)]
                kept = vector_math.sigmoid(gate[2]) * BufferLoad(c, place(v))
                return kept + vector_math.sigmoid(gate[0]) * vector_math.tanh(gate[3])

            def new_state(v: Expr) -> Expr:
                return vector_math.sigmoid(gates.get(1, v)) * vector_math.tanh(
                    BufferLoad(c, place(v))
                )

            return seq(
                gates.declare,
                gates.start(lambda g, v: BufferLoad(x, [at.time, at.batch, column + g + v])),
                gates.add_product(
                    hidden,
                    lambda k: BufferLoad(h, [at.now, at.direction, at.batch, k]),
                    lambda k, g, v: BufferLoad(weights, [at.direction, unit, k, g + v]),
                ),
                vector_store(LANES, new_cell, lambda v, new: BufferStore(c, new, place(v))),
                vector_store(
                    LANES, new_state, lambda v, new: BufferStore(h, new, [at.next, *place(v)])
                ),
            )

        def begin(d: Expr, b: Expr) -> Stmt:
            return seq(
                walk.row(lambda i: BufferStore(h, first_h[d, b, i], [int64(0), d, b, i])),
                walk.row(lambda i: BufferStore(c, first_c[d, b, i], [d, b, i])),
            )

        def end(d: Expr, b: Expr, last: Expr) -> Stmt:
            return seq(
                walk.row(lambda i: BufferStore(y_h, h[last, d, b, i], [d, b, i])),
                walk.row(lambda i: BufferStore(y_c, c[d, b, i], [d, b, i])),
            )

        def step(at: Step) -> Stmt:
            return seq(
                walk.units(lambda unit: block(at, unit)),
                walk.emit(y, h, at),
            )

        return walk.run(y, ins[4:], begin, step, end)

    operands = [projected, recurrent, initial_h, initial_c, *lengths]
    return _outputs(direct(shapes, operands, body, ["float32"] * 5, "lstm"))


@define("gru", pattern=Pattern.OPAQUE)
def gru(
    projected: te.Tensor,
    recurrent: te.Tensor,
    initial_h: te.Tensor,
    recurrent_bias: te.Tensor,
    *lengths: te.Tensor,
    hidden: int,
    reverse: bool,
    node: int,
) -> list[te.Tensor]:
    """GRU with ``linear_before_reset``: Y, Y_h and a scratch tensor, as of ``lstm``.

    Gates are in the order update, reset, hidden. ``recurrent_bias`` [directions, blocks * LANES] is
    that of the hidden gate, which the reset gate scales; all others are in ``projected``.
    """
    walk = Walk(projected, initial_h, hidden, reverse, node)
    shapes = [walk.outputs, walk.state, [int64(2), *walk.padded]]

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        x, weights, first_h, bias = ins[:4]
        y, y_h, h = outs

        def block(at: Step, unit: Expr) -> Stmt:
            gates = Accumulators("gates", 3)
            start = unit * int64(LANES)
            column = (at.direction * walk.blocks + unit) * int64(3 * LANES)

            def initial(gate: Expr, v: Expr) -> Expr:
                return BufferLoad(x, [at.time, at.batch, column + gate + v])

            def candidate(v: Expr) -> Expr:
                reset = vector_math.sigmoid(gates.get(1, v)) * gates.get(2, v)
                return vector_math.tanh(initial(int64(2 * LANES), v) + reset)

            def begin_gate(gate: int) -> Stmt:
                if gate < 2:
                    return vector(
                        LANES, lambda v: gates.set(gate, v, initial(int64(gate * LANES), v))
                    )
                return vector(
                    LANES, lambda v: gates.set(2, v, BufferLoad(bias, [at.direction, start + v]))
                )

            return seq(
                gates.declare,
                *[begin_gate(g) for g in range(3)],
                gates.add_product(
                    hidden,
                    lambda k: BufferLoad(h, [at.now, at.direction, at.batch, k]),
                    lambda k, g, v: BufferLoad(weights, [at.direction, unit, k, g + v]),
                ),
                gates.replace(2, candidate),
                gates.replace(0, lambda v: vector_math.sigmoid(gates.get(0, v))),
                vector(LANES, lambda v: _blend(h, at, start + v, gates.get(0, v), gates.get(2, v))),
            )

        def step(at: Step) -> Stmt:
            return seq(
                walk.units(lambda unit: block(at, unit)),
                walk.emit(y, h, at),
            )

        begin, end = _h_only(walk, first_h, h, y_h)
        return walk.run(y, ins[4:], begin, step, end)

    operands = [projected, recurrent, initial_h, recurrent_bias, *lengths]
    return _outputs(direct(shapes, operands, body, ["float32"] * 3, "gru"))


@define("gru_reset_first", pattern=Pattern.OPAQUE)
def gru_reset_first(
    projected: te.Tensor,
    recurrent: te.Tensor,
    recurrent_hidden: te.Tensor,
    initial_h: te.Tensor,
    *lengths: te.Tensor,
    hidden: int,
    reverse: bool,
    node: int,
) -> list[te.Tensor]:
    """GRU without ``linear_before_reset``: Y, Y_h and three scratch tensors, as of ``lstm``.

    ``recurrent`` are the weights of the update and reset gates, ``recurrent_hidden`` those of the
    hidden gate, which multiply the state that has been reset.
    """
    walk = Walk(projected, initial_h, hidden, reverse, node)
    shapes = [walk.outputs, walk.state, [int64(2), *walk.padded], walk.padded, walk.padded]

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        x, weights, hidden_weights, first_h = ins[:4]
        y, y_h, h, update, reset = outs

        def column(at: Step, unit: Expr) -> Expr:
            return (at.direction * walk.blocks + unit) * int64(3 * LANES)

        def gate_block(at: Step, unit: Expr) -> Stmt:
            gates = Accumulators("gates", 2)

            def place(v: Expr) -> list[Expr]:
                return [at.direction, at.batch, unit * int64(LANES) + v]

            def after_reset(v: Expr) -> Expr:
                return vector_math.sigmoid(gates.get(1, v)) * BufferLoad(h, [at.now, *place(v)])

            first = column(at, unit)
            return seq(
                gates.declare,
                gates.start(lambda g, v: BufferLoad(x, [at.time, at.batch, first + g + v])),
                gates.add_product(
                    hidden,
                    lambda k: BufferLoad(h, [at.now, at.direction, at.batch, k]),
                    lambda k, g, v: BufferLoad(weights, [at.direction, unit, k, g + v]),
                ),
                gates.replace(0, lambda v: vector_math.sigmoid(gates.get(0, v))),
                vector(LANES, lambda v: BufferStore(update, gates.get(0, v), place(v))),
                vector_store(LANES, after_reset, lambda v, new: BufferStore(reset, new, place(v))),
            )

        def hidden_block(at: Step, unit: Expr) -> Stmt:
            start, first = unit * int64(LANES), column(at, unit) + int64(2 * LANES)
            candidate = Accumulators("candidate", 1)

            def blend(v: Expr) -> Stmt:
                keep = BufferLoad(update, [at.direction, at.batch, start + v])
                return _blend(h, at, start + v, keep, candidate.get(0, v))

            return seq(
                candidate.declare,
                candidate.start(lambda _, v: BufferLoad(x, [at.time, at.batch, first + v])),
                candidate.add_product(
                    hidden,
                    lambda k: BufferLoad(reset, [at.direction, at.batch, k]),
                    lambda k, _, v: BufferLoad(hidden_weights, [at.direction, unit, k, v]),
                ),
                candidate.replace(0, lambda v: vector_math.tanh(candidate.get(0, v))),
                vector(LANES, blend),
            )

        def step(at: Step) -> Stmt:
            return seq(
                walk.units(lambda unit: gate_block(at, unit)),
                walk.units(lambda unit: hidden_block(at, unit)),
                walk.emit(y, h, at),
            )

        begin, end = _h_only(walk, first_h, h, y_h)
        return walk.run(y, ins[4:], begin, step, end)

    operands = [projected, recurrent, recurrent_hidden, initial_h, *lengths]
    return _outputs(direct(shapes, operands, body, ["float32"] * 5, "gru"))


def _outputs(result: te.Tensor | list[te.Tensor]) -> list[te.Tensor]:
    assert not isinstance(result, te.Tensor)
    return list(result)


def _blend(h: Buffer, at: Step, unit: Expr, keep: Expr, new: Expr) -> Stmt:
    """The next state: as much of the old one as the update gate keeps."""
    old = BufferLoad(h, [at.now, at.direction, at.batch, unit])
    one = tirx.const(1, "float32")
    return BufferStore(h, (one - keep) * new + keep * old, [at.next, at.direction, at.batch, unit])


def _h_only(
    walk: Walk, first_h: Buffer, h: Buffer, y_h: Buffer
) -> tuple[Callable[[Expr, Expr], Stmt], Callable[[Expr, Expr, Expr], Stmt]]:
    def begin(d: Expr, b: Expr) -> Stmt:
        return walk.row(lambda i: BufferStore(h, first_h[d, b, i], [int64(0), d, b, i]))

    def end(d: Expr, b: Expr, last: Expr) -> Stmt:
        return walk.row(lambda i: BufferStore(y_h, h[last, d, b, i], [d, b, i]))

    return begin, end
