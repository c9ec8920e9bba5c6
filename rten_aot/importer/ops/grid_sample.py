"""GridSample: https://onnx.ai/onnx/operators/onnx__GridSample.html."""

from __future__ import annotations

from tvm import relax

import rten_aot.dialect.grid_sample  # noqa: F401  (defines what is emitted here)
from rten_aot.importer.context import OpContext
from rten_aot.importer.elementwise import check_type
from rten_aot.importer.registry import FLOATS, op


@op("GridSample", types=FLOATS, limits="pictures (rank 4), linear interpolation, zeros outside")
def grid_sample(ctx: OpContext, x: relax.Expr, grid: relax.Expr) -> relax.Expr:
    """Bilinear samples; the file format has no other mode."""
    align_corners = ctx.attrs.bool("align_corners")
    for operand in (x, grid):
        check_type(ctx, operand, FLOATS)
        if ctx.rank(operand) != 4:
            ctx.fail(f"operands of rank {ctx.rank(operand)} are not supported; supported: 4")
    ctx.equal_dims(ctx.shape(x)[0], ctx.shape(grid)[0], "batches of picture and grid: sizes")
    ctx.equal_dims(ctx.shape(grid)[3], 2, "coordinates of a point: sizes")
    return ctx.call("grid_sample", x, grid, align_corners=align_corners)
