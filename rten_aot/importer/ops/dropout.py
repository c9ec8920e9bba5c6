"""Dropout: https://onnx.ai/onnx/operators/onnx__Dropout.html."""

from __future__ import annotations

from tvm import relax

from rten_aot.importer.context import OpContext
from rten_aot.importer.registry import op


@op("Dropout", limits="no training mode")
def dropout(
    ctx: OpContext,
    x: relax.Expr,
    ratio: relax.Expr | None = None,
    training_mode: relax.Expr | None = None,
) -> tuple[relax.Expr, relax.Expr | None]:
    """The input, and a mask of ones: at inference nothing is dropped."""
    del ratio
    ctx.attrs.ignore("seed", "nothing is drawn at inference")
    if training_mode is not None:
        content = ctx.contents(training_mode)
        if content is None or bool(content.flat[0]):
            ctx.fail("training mode is not supported", hint="export the model for inference")
    if len(ctx.node.outputs) < 2 or ctx.node.outputs[1] is None:
        return x, None
    return x, ctx.call("full", ctx.shape_expr(ctx.shape(x)), value=1, dtype="int32")
