"""Recurrent layers: the part of LSTM and GRU that must go step by step.

The products with the inputs of all steps are one matrix product beforehand; its result is the
operand ``projected``. Hidden units are handled in blocks of ``LANES``, and everything a block needs
lies together:

- ``projected`` is [steps, batch, directions * blocks * gates * LANES];
- recurrent weights, which may be float16, are [directions, blocks, hidden, gates * LANES].

Units past the hidden size in the last block are padding and may hold anything finite.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te, tirx
from tvm.tirx import Buffer, BufferLoad, BufferStore, Expr, Stmt

from rten_aot.dialect import vector_math
from rten_aot.dialect.direct import direct
from rten_aot.dialect.loops import int64, seq
from rten_aot.dialect.recurrence import LANES, Accumulators, Step, Walk
from rten_aot.dialect.registry import Pattern, define
from rten_aot.dialect.storage import stored


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
    walk_type: type[Walk] = Walk,
) -> list[te.Tensor]:
    """The tensors Y, Y_h and Y_c of LSTM and two scratch tensors.

    Y is [steps, directions, batch, hidden], Y_h and Y_c are [directions, batch, hidden]. Gates are
    in the order input, output, forget, cell. The first direction runs from the end if ``reverse``,
    the second one always does. ``lengths`` are the int32 numbers of steps of each batch entry;
    outputs after them are zero.
    """
    walk = walk_type(projected, initial_h, hidden, reverse, node)
    shapes = [walk.outputs, walk.state, walk.state, walk.two_states, walk.padded]

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        x, weights, first_h, first_c = ins[:4]
        y, y_h, y_c, h, c = outs

        def begin(d: Expr, b: Expr) -> Stmt:
            cells = walk.row(lambda i: BufferStore(c, first_c[d, b, i], [d, b, i]))
            return seq(walk.load_state(first_h, h, d, b), cells)

        def step(at: Step) -> Stmt:
            blocks = walk.units(lambda unit: _lstm_block(walk, at, unit, x, weights, h, c))
            return seq(blocks, walk.wait(), walk.emit(y, h, at))

        def end(d: Expr, b: Expr, last: Expr) -> Stmt:
            cells = walk.row(lambda i: BufferStore(y_c, c[d, b, i], [d, b, i]))
            return seq(walk.save_state(h, y_h, d, b, last), cells)

        return walk.run(y, ins[4:], begin, step, end)

    operands = [projected, recurrent, initial_h, initial_c, *lengths]
    return _outputs(direct(shapes, operands, body, ["float32"] * 5, "lstm"))


def _lstm_block(
    walk: Walk, at: Step, unit: Expr, x: Buffer, weights: Buffer, h: Buffer, c: Buffer
) -> Stmt:
    gates = walk.sums("gates", 4)
    column = walk.column(at, unit, 4)

    def new_cell(v: Expr) -> Expr:
        gate = [gates.get(g, v) for g in range(4)]
        kept = vector_math.sigmoid(gate[2]) * BufferLoad(c, at.place(unit, v))
        return kept + vector_math.sigmoid(gate[0]) * vector_math.tanh(gate[3])

    def new_state(v: Expr) -> Expr:
        cell = BufferLoad(c, at.place(unit, v))
        return vector_math.sigmoid(gates.get(1, v)) * vector_math.tanh(cell)

    return seq(
        gates.declare,
        gates.start(lambda g, v: BufferLoad(x, [at.time, at.batch, column + g + v])),
        _add_recurrent(walk, at, unit, gates, weights, h),
        walk.assign(new_cell, lambda v, new: BufferStore(c, new, at.place(unit, v))),
        walk.assign(new_state, lambda v, new: BufferStore(h, new, [at.next, *at.place(unit, v)])),
    )


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
    walk_type: type[Walk] = Walk,
) -> list[te.Tensor]:
    """GRU with ``linear_before_reset``: Y, Y_h and a scratch tensor, as of ``lstm``.

    Gates are in the order update, reset, hidden. ``recurrent_bias`` [directions, blocks * LANES] is
    that of the hidden gate, which the reset gate scales; all others are in ``projected``.
    """
    walk = walk_type(projected, initial_h, hidden, reverse, node)
    shapes = [walk.outputs, walk.state, walk.two_states]

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        x, weights, first_h, bias = ins[:4]
        y, y_h, h = outs

        def step(at: Step) -> Stmt:
            blocks = walk.units(lambda unit: _gru_block(walk, at, unit, x, weights, bias, h))
            return seq(blocks, walk.wait(), walk.emit(y, h, at))

        return walk.run(
            y,
            ins[4:],
            lambda d, b: walk.load_state(first_h, h, d, b),
            step,
            lambda d, b, last: walk.save_state(h, y_h, d, b, last),
        )

    operands = [projected, recurrent, initial_h, recurrent_bias, *lengths]
    return _outputs(direct(shapes, operands, body, ["float32"] * 3, "gru"))


def _gru_block(
    walk: Walk, at: Step, unit: Expr, x: Buffer, weights: Buffer, bias: Buffer, h: Buffer
) -> Stmt:
    gates = walk.sums("gates", 3)
    column = walk.column(at, unit, 3)

    def projected(gate: int, v: Expr) -> Expr:
        return BufferLoad(x, [at.time, at.batch, column + int64(gate * LANES) + v])

    def candidate(v: Expr) -> Expr:
        reset = vector_math.sigmoid(gates.get(1, v)) * gates.get(2, v)
        return vector_math.tanh(projected(2, v) + reset)

    def own_bias(v: Expr) -> Stmt:
        return gates.set(2, v, BufferLoad(bias, [at.direction, unit * int64(LANES) + v]))

    return seq(
        gates.declare,
        walk.lanes(lambda v: gates.set(0, v, projected(0, v))),
        walk.lanes(lambda v: gates.set(1, v, projected(1, v))),
        walk.lanes(own_bias),
        _add_recurrent(walk, at, unit, gates, weights, h),
        gates.replace(2, candidate),
        gates.replace(0, lambda v: vector_math.sigmoid(gates.get(0, v))),
        walk.lanes(lambda v: _blend(h, at, unit, v, gates.get(0, v), gates.get(2, v))),
    )


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
    walk_type: type[Walk] = Walk,
) -> list[te.Tensor]:
    """GRU without ``linear_before_reset``: Y, Y_h and three scratch tensors, as of ``lstm``.

    ``recurrent`` are the weights of the update and reset gates, ``recurrent_hidden`` those of the
    hidden gate, which multiply the state that has been reset.
    """
    walk = walk_type(projected, initial_h, hidden, reverse, node)
    shapes = [walk.outputs, walk.state, walk.two_states, walk.padded, walk.padded]

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        x, weights, hidden_weights, first_h = ins[:4]
        y, y_h, h, update, reset = outs

        def step(at: Step) -> Stmt:
            def gates(unit: Expr) -> Stmt:
                return _reset_block(walk, at, unit, x, weights, h, update, reset)

            def candidates(unit: Expr) -> Stmt:
                return _candidate_block(walk, at, unit, x, hidden_weights, h, update, reset)

            return seq(
                walk.units(gates),
                walk.wait(),
                walk.units(candidates),
                walk.wait(),
                walk.emit(y, h, at),
            )

        return walk.run(
            y,
            ins[4:],
            lambda d, b: walk.load_state(first_h, h, d, b),
            step,
            lambda d, b, last: walk.save_state(h, y_h, d, b, last),
        )

    operands = [projected, recurrent, recurrent_hidden, initial_h, *lengths]
    return _outputs(direct(shapes, operands, body, ["float32"] * 5, "gru"))


def _reset_block(
    walk: Walk,
    at: Step,
    unit: Expr,
    x: Buffer,
    weights: Buffer,
    h: Buffer,
    update: Buffer,
    reset: Buffer,
) -> Stmt:
    """Fill ``update`` with that gate, ``reset`` with the state that the reset gate lets through."""
    gates = walk.sums("gates", 2)
    column = walk.column(at, unit, 3)

    def passed(v: Expr) -> Expr:
        return vector_math.sigmoid(gates.get(1, v)) * BufferLoad(h, [at.now, *at.place(unit, v)])

    return seq(
        gates.declare,
        gates.start(lambda g, v: BufferLoad(x, [at.time, at.batch, column + g + v])),
        _add_recurrent(walk, at, unit, gates, weights, h),
        gates.replace(0, lambda v: vector_math.sigmoid(gates.get(0, v))),
        walk.lanes(lambda v: BufferStore(update, gates.get(0, v), at.place(unit, v))),
        walk.assign(passed, lambda v, new: BufferStore(reset, new, at.place(unit, v))),
    )


def _candidate_block(
    walk: Walk,
    at: Step,
    unit: Expr,
    x: Buffer,
    weights: Buffer,
    h: Buffer,
    update: Buffer,
    reset: Buffer,
) -> Stmt:
    candidate = walk.sums("candidate", 1)
    column = walk.column(at, unit, 3) + int64(2 * LANES)

    def blend(v: Expr) -> Stmt:
        keep = BufferLoad(update, at.place(unit, v))
        return _blend(h, at, unit, v, keep, candidate.get(0, v))

    return seq(
        candidate.declare,
        candidate.start(lambda _, v: BufferLoad(x, [at.time, at.batch, column + v])),
        candidate.add_product(
            walk.hidden,
            lambda k: BufferLoad(reset, [at.direction, at.batch, k]),
            lambda k, _, v: stored(BufferLoad(weights, [at.direction, unit, k, v])),
        ),
        candidate.replace(0, lambda v: vector_math.tanh(candidate.get(0, v))),
        walk.lanes(blend),
    )


def _add_recurrent(
    walk: Walk, at: Step, unit: Expr, gates: Accumulators, weights: Buffer, h: Buffer
) -> Stmt:
    """Add the products of the state and the recurrent weights of a block."""
    return gates.add_product(
        walk.hidden,
        lambda k: BufferLoad(h, [at.now, at.direction, at.batch, k]),
        lambda k, g, v: stored(BufferLoad(weights, [at.direction, unit, k, g + v])),
    )


def _blend(h: Buffer, at: Step, unit: Expr, v: Expr, keep: Expr, new: Expr) -> Stmt:
    """The next state: as much of the old one as the update gate keeps."""
    place = at.place(unit, v)
    one = tirx.const(1, "float32")
    value = (one - keep) * new + keep * BufferLoad(h, [at.now, *place])
    return BufferStore(h, value, [at.next, *place])


def _outputs(result: te.Tensor | list[te.Tensor]) -> list[te.Tensor]:
    assert not isinstance(result, te.Tensor)
    return list(result)
