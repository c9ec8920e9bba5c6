"""NonMaxSuppression: https://onnx.ai/onnx/operators/onnx__NonMaxSuppression.html."""

from __future__ import annotations

from tvm import relax

import rten_aot.dialect.non_max_suppression  # noqa: F401  (defines what is emitted here)
from rten_aot.importer.context import OpContext
from rten_aot.importer.elementwise import check_type
from rten_aot.importer.registry import FLOATS, op
from rten_aot.importer.runtime_sizes import measured
from rten_aot.importer.sizes import one_element

_ORDERS = {"TopLeftBottomRight": False, "CenterWidthHeight": True}


@op("NonMaxSuppression", data_dependent=True, types=FLOATS)
def non_max_suppression(
    ctx: OpContext,
    boxes: relax.Expr,
    scores: relax.Expr,
    most: relax.Expr | None = None,
    overlap: relax.Expr | None = None,
    least: relax.Expr | None = None,
) -> relax.Expr:
    """Rows of batch, class and box, best boxes first.

    Without a number of boxes, or with one below 1, there are no rows. Without a threshold for
    scores all boxes count. A box goes if it overlaps a better one by more than the threshold, which
    is 0 if missing.
    """
    centered = ctx.attrs.enum("box_order", _ORDERS)
    for x in (boxes, scores):
        check_type(ctx, x, FLOATS)
        if ctx.rank(x) != 3:
            ctx.shape_error(f"boxes or scores have rank {ctx.rank(x)}; needed: 3")
    batches, places, corners = ctx.shape(boxes)
    ctx.equal_dims(corners, 4, "corners of a box: sizes")
    ctx.equal_dims(batches, ctx.shape(scores)[0], "batches of boxes and scores: sizes")
    ctx.equal_dims(places, ctx.shape(scores)[2], "numbers of boxes and of scores: sizes")
    limits = {"count": most, "overlap": overlap, "score": least}
    given = {name: x for name, x in limits.items() if x is not None}
    for name, x in given.items():
        one_element(ctx, x, f"the limit of {name}")
        check_type(ctx, x, ("int32",) if name == "count" else FLOATS)
    total, starts, chosen, _ = ctx.call(
        "nms_select", boxes, scores, *given.values(), given=list(given), centered=centered
    )
    classes = ctx.shape_expr([ctx.shape(scores)[1]])
    return ctx.call(
        "nms_list", starts, chosen, classes, ctx.shape_expr(measured(ctx, total, 1, "chosen"))
    )
