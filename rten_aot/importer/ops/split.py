"""Split: https://onnx.ai/onnx/operators/onnx__Split.html."""

from __future__ import annotations

from tvm import relax

import rten_aot.dialect.movement  # noqa: F401  (defines what is emitted here)
from rten_aot.importer.context import Integers, OpContext, Size
from rten_aot.importer.ops.slice import cut
from rten_aot.importer.registry import op
from rten_aot.importer.runtime_sizes import sizes
from rten_aot.importer.sizes import at_least, ceil_div, quotient


@op("Split", data_dependent=True)
def split(ctx: OpContext, x: relax.Expr, split: Integers | None = None) -> list[relax.Expr]:
    """Parts of the input along an axis: of given sizes, or a number of equal ones.

    With the attribute ``num_outputs``, the last part may be smaller.
    """
    axis = ctx.normalize_axis(ctx.attrs.int("axis"), ctx.rank(x))
    count = ctx.attrs.optional_int("num_outputs")
    total = ctx.shape(x)[axis]
    outputs = len(ctx.node.outputs)
    if split is not None:
        parts = sizes(ctx, split, "the sizes of the parts", needed=outputs)
        ctx.equal_dims(
            sum(parts[1:], parts[0]) if parts else 0, total, "sum of parts and axis: sizes"
        )
    elif count is not None:
        parts = _last_smaller(ctx, total, count)
    else:
        parts = [quotient(ctx, [total], [outputs])] * outputs
    if len(parts) < outputs:
        ctx.shape_error(f"{len(parts)} parts are to fill {outputs} outputs")
    results: list[relax.Expr] = []
    start: Size = 0
    for part in parts:
        results.append(cut(ctx, x, [(axis, start, part, 1)]))
        start = start + part
    return results


def _last_smaller(ctx: OpContext, total: Size, count: int) -> list[Size]:
    if count < 1:
        ctx.shape_error(f"cannot split into {count} parts")
    size = ceil_div(total, count)
    last = total - size * (count - 1)
    parts = f"{count} parts of one size"
    at_least(ctx, last, 0, f"an axis of {ctx.text(total)} cannot be split into {parts}")
    return [size] * (count - 1) + [last]
