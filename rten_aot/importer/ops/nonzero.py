"""NonZero: https://onnx.ai/onnx/operators/onnx__NonZero.html."""

from __future__ import annotations

import numpy as np
from tvm import relax

import rten_aot.dialect.nonzero  # noqa: F401  (defines what is emitted here)
from rten_aot.importer.context import OpContext
from rten_aot.importer.known import numbers_of
from rten_aot.importer.registry import op


@op("NonZero", data_dependent=True)
def nonzero(ctx: OpContext, x: relax.Expr) -> relax.Expr:
    """Indices as the columns of a matrix; for a number (rank 0) the matrix has no rows."""
    known = numbers_of(ctx, x)
    if known is not None:
        rows = np.array(np.nonzero(known)) if known.ndim else np.zeros((0, int(known != 0)))
        return ctx.const(rows.astype(np.int32))
    total, starts = ctx.call("nonzero_count", x)
    (count,) = ctx.measure(total, "number of elements found")
    return ctx.call("nonzero", x, starts, ctx.shape_expr([count]))
