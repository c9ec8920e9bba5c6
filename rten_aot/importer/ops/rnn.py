"""LSTM and GRU.

The products with the inputs of all steps become one matrix product; the kernels of ``dialect.rnn``
go through the steps. ``sequence_lens`` is obeyed, as ONNX has it.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

import rten_aot.dialect.arithmetic
import rten_aot.dialect.generate
import rten_aot.dialect.matmul
import rten_aot.dialect.movement
import rten_aot.dialect.rnn_on_gpu  # noqa: F401  (all define what is emitted here)
from rten_aot.dialect.recurrence import LANES, blocks_of
from rten_aot.importer.context import Integers, OpContext, Size
from rten_aot.importer.ops.layout import permute
from rten_aot.importer.ops.slice import cut
from rten_aot.importer.registry import FLOATS, op
from rten_aot.importer.sizes import product, text

_DIRECTIONS = {"Forward": (1, False), "Reverse": (1, True), "Bidirectional": (2, False)}


@op("LSTM", types=FLOATS, limits="peepholes")
def lstm(
    ctx: OpContext,
    x: relax.Expr,
    w: relax.Expr,
    r: relax.Expr,
    b: relax.Expr | None = None,
    sequence_lens: Integers | None = None,
    initial_h: relax.Expr | None = None,
    initial_c: relax.Expr | None = None,
    p: relax.Expr | None = None,
) -> list[relax.Expr]:
    """https://onnx.ai/onnx/operators/onnx__LSTM.html."""
    if p is not None:
        ctx.fail("peephole weights (input P) are not supported")
    layer = _Layer(ctx, 4, x, w, r, b, sequence_lens)
    weights = layer.packed_recurrent(r, 4)
    operands = [layer.project(x, w, layer.summed_bias(b)), weights]
    states = [layer.state(initial_h, "initial_h"), layer.state(initial_c, "initial_c")]
    return layer.run("lstm", operands + states)[:3]


@op("GRU", types=FLOATS)
def gru(
    ctx: OpContext,
    x: relax.Expr,
    w: relax.Expr,
    r: relax.Expr,
    b: relax.Expr | None = None,
    sequence_lens: Integers | None = None,
    initial_h: relax.Expr | None = None,
) -> list[relax.Expr]:
    """https://onnx.ai/onnx/operators/onnx__GRU.html."""
    linear_before_reset = ctx.attrs.bool("linear_before_reset", default=False)
    layer = _Layer(ctx, 3, x, w, r, b, sequence_lens)
    state = layer.state(initial_h, "initial_h")
    hidden = layer.hidden
    if not linear_before_reset:
        projected = layer.project(x, w, layer.summed_bias(b))
        gates = layer.packed_recurrent(cut(ctx, r, [(1, 0, 2 * hidden, 1)]), 2)
        last = layer.packed_recurrent(cut(ctx, r, [(1, 2 * hidden, hidden, 1)]), 1)
        return layer.run("gru_reset_first", [projected, gates, last, state])[:2]
    bias, inner = None, ctx.const(np.zeros([layer.directions, layer.blocks * LANES], np.float32))
    if b is not None:
        # The reset gate scales the recurrent bias of the hidden gate; the others are mere sums.
        kept = ctx.const(np.repeat(np.array([1, 1, 0], np.float32), hidden))
        of_input, recurrent = (cut(ctx, b, [(1, i * 3 * hidden, 3 * hidden, 1)]) for i in (0, 1))
        bias = ctx.call("add", of_input, ctx.call("multiply", recurrent, kept))
        own = cut(ctx, b, [(1, 5 * hidden, hidden, 1)])
        inner = layer.packed(ctx.reshape(own, [layer.directions, hidden, 1]), 1)
        inner = ctx.reshape(inner, [layer.directions, layer.blocks * LANES])
    weights = layer.packed_recurrent(r, 3)
    return layer.run("gru", [layer.project(x, w, bias), weights, state, inner])[:2]


class _Layer:
    """One recurrent layer: its sizes, and its operands in the form that the kernels want."""

    def __init__(
        self,
        ctx: OpContext,
        gates: int,
        x: relax.Expr,
        w: relax.Expr,
        r: relax.Expr,
        b: relax.Expr | None,
        lengths: relax.Expr | None,
    ) -> None:
        self._ctx = ctx
        self._gates = gates
        self._lengths = lengths
        self.directions, self._reverse = ctx.attrs.enum("direction", _DIRECTIONS, default="Forward")
        self.hidden = ctx.attrs.int("hidden_size")
        self.blocks = blocks_of(self.hidden)
        if ctx.rank(x) != 3:
            ctx.shape_error(f"input X has rank {ctx.rank(x)}; needed: 3")
        self._steps, self._batch, inputs = ctx.shape(x)
        rows = gates * self.hidden
        self._inputs = self._expect(w, "W", [self.directions, rows, inputs])[2]
        self._expect(r, "R", [self.directions, rows, self.hidden])
        if b is not None:
            self._expect(b, "B", [self.directions, 2 * rows])
        if lengths is not None:
            self._expect(lengths, "sequence_lens", [self._batch], "int32")

    def _expect(
        self, x: relax.Expr, name: str, shape: list[Size], dtype: str = "float32"
    ) -> list[Size]:
        """The shape of an operand, which must be ``shape``; numbers where one of both has them."""
        own = self._ctx.shape(x)
        if self._ctx.dtype(x) != dtype:
            self._ctx.shape_error(f"input {name} is {self._ctx.dtype(x)}; needed: {dtype}")
        what = f"input {name} has shape {text(self._ctx, own)}"
        if len(own) != len(shape):
            self._ctx.shape_error(f"{what}; needed: {text(self._ctx, shape)}")
        return [
            self._ctx.equal_dims(a, b, f"{what}; sizes") for a, b in zip(own, shape, strict=True)
        ]

    def state(self, x: relax.Expr | None, name: str) -> relax.Expr:
        """An initial state; zeros if there is none."""
        shape = [self.directions, self._batch, self.hidden]
        if x is not None:
            self._expect(x, name, shape)
            return x
        if isinstance(self._batch, int):
            return self._ctx.const(np.zeros(shape, np.float32))
        return self._ctx.call("full", self._ctx.shape_expr(shape), value=0.0, dtype="float32")

    def summed_bias(self, b: relax.Expr | None) -> relax.Expr | None:
        """Input and recurrent biases together: [directions, gates * hidden]."""
        if b is None:
            return None
        rows = self._gates * self.hidden
        constant = self._ctx.constant_array(b)
        if constant is not None:
            return self._ctx.const(constant[:, :rows] + constant[:, rows:])
        parts = [cut(self._ctx, b, [(1, start, rows, 1)]) for start in (0, rows)]
        return self._ctx.call("add", *parts)

    def packed(self, w: relax.Expr, gates: int) -> relax.Expr:
        """[directions, gates * hidden, n] -> [directions, gates, blocks, LANES, n], zero-padded."""
        ctx, count = self._ctx, self._ctx.shape(w)[-1]
        x = ctx.reshape(w, [self.directions, gates, self.hidden, count])
        missing = self.blocks * LANES - self.hidden
        constant = ctx.constant_array(x)
        if missing and constant is not None:
            x = ctx.const(np.pad(constant, ((0, 0), (0, 0), (0, missing), (0, 0))))
        elif missing:
            sizes = [ctx.shape_expr([n]) for n in (0, missing)]
            x = ctx.call("pad", x, *sizes, axes=[2], mode="constant", constant=0)
        return ctx.reshape(x, [self.directions, gates, self.blocks, LANES, count])

    def packed_recurrent(self, r: relax.Expr, gates: int) -> relax.Expr:
        """[directions, gates * hidden, hidden] -> [directions, blocks, hidden, gates * LANES]."""
        x = permute(self._ctx, self.packed(r, gates), [0, 2, 4, 1, 3])
        return self._ctx.reshape(x, [self.directions, self.blocks, self.hidden, gates * LANES])

    def project(self, x: relax.Expr, w: relax.Expr, bias: relax.Expr | None) -> relax.Expr:
        """``x`` times the transpose of ``w``, plus ``bias``, for all steps at once."""
        ctx = self._ctx
        columns = self.directions * self.blocks * self._gates * LANES
        weights = permute(ctx, self.packed(w, self._gates), [4, 0, 2, 1, 3])
        weights = ctx.reshape(weights, [self._inputs, columns])
        rows = ctx.reshape(x, [product([self._steps, self._batch]), self._inputs])
        result = ctx.call("matmul", rows, weights)
        if bias is not None:
            rows_of_bias = self._gates * self.hidden
            b = self.packed(ctx.reshape(bias, [self.directions, rows_of_bias, 1]), self._gates)
            b = ctx.reshape(permute(ctx, b, [4, 0, 2, 1, 3]), [columns])
            result = ctx.call("add", result, b)
        return ctx.reshape(result, [self._steps, self._batch, columns])

    def run(self, kernel: str, operands: list[relax.Expr]) -> list[relax.Expr]:
        """Emit the kernel."""
        extra = [] if self._lengths is None else [self._lengths]
        results: list[relax.Expr] = self._ctx.call(
            kernel,
            *operands,
            *extra,
            hidden=self.hidden,
            reverse=self._reverse,
            node=self._ctx.node_index,
        )
        return results
