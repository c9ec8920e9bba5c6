"""Dropout: https://onnx.ai/onnx/operators/onnx__Dropout.html."""

from __future__ import annotations

from tvm import relax

from rten_aot.importer.context import OpContext
from rten_aot.importer.known import numbers_of
from rten_aot.importer.registry import op
from rten_aot.importer.sizes import one_element


@op("Dropout", limits="no training mode")
def dropout(
    ctx: OpContext,
    x: relax.Expr,
    ratio: relax.Expr | None = None,
    training_mode: relax.Expr | None = None,
) -> tuple[relax.Expr, relax.Expr | None]:
    """The input, and a mask of ones: at inference, and with a ratio of 0, nothing is dropped."""
    ctx.attrs.ignore("seed", "nothing is drawn")
    hint = "export the model for inference"
    training = 0 if training_mode is None else _number(ctx, training_mode)
    if training is None:
        ctx.fail("training_mode must be known at compile time", hint=hint)
    if training and (ratio is None or _number(ctx, ratio) != 0):
        ctx.fail("in training mode the ratio must be 0, known at compile time", hint=hint)
    if len(ctx.node.outputs) < 2 or ctx.node.outputs[1] is None:
        return x, None
    return x, ctx.call("full", ctx.shape_expr(ctx.shape(x)), value=1, dtype="int32")


def _number(ctx: OpContext, x: relax.Expr) -> float | None:
    number = numbers_of(ctx, one_element(ctx, x, "ratio or training mode"))
    return None if number is None else float(number.item())
