"""TopK: https://onnx.ai/onnx/operators/onnx__TopK.html."""

from __future__ import annotations

from tvm import relax

import rten_aot.dialect.sort  # noqa: F401  (defines what is emitted here)
from rten_aot.importer.context import Integers, OpContext
from rten_aot.importer.registry import op
from rten_aot.importer.runtime_sizes import sizes
from rten_aot.importer.sizes import at_least, one_element


@op("TopK", data_dependent=True)
def top_k(ctx: OpContext, x: relax.Expr, k: Integers) -> list[relax.Expr]:
    """The k largest or smallest elements along an axis, in order, and their indices.

    Of equals the first ones win; NaN counts as greatest.
    """
    axis = ctx.normalize_axis(ctx.attrs.int("axis", default=-1), ctx.rank(x))
    largest = ctx.attrs.bool("largest", default=True)
    ctx.attrs.ignore("sorted", "sorted results serve both")
    counts = sizes(ctx, one_element(ctx, k, "k"), "k")
    size = ctx.shape(x)[axis]
    message = f"k is {ctx.text(counts[0])}, but the axis has {ctx.text(size)} elements"
    at_least(ctx, size, counts[0], message)
    results: list[relax.Expr] = ctx.call(
        "top_k", x, ctx.shape_expr(counts), axis=axis, largest=largest
    )
    return results
