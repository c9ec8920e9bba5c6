"""Cast, CastLike and Identity: https://onnx.ai/onnx/operators/."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

import rten_aot.dialect.convert  # noqa: F401  (defines what is emitted here)
from rten_aot.importer.context import OpContext
from rten_aot.importer.known import Element, fold
from rten_aot.importer.registry import op

DTYPES = {"Int32": "int32", "Float": "float32", "Int8": "int8", "UInt8": "uint8"}
"""Element types by their names in the file format."""


def convert_to(ctx: OpContext, x: relax.Expr, dtype: str) -> relax.Expr:
    """``x`` in another element type; floats saturate, integers wrap."""
    source = ctx.dtype(x)
    if source == dtype:
        return x

    def numbers(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if source != "float32" or dtype == "float32":
            return np.asarray(array, dtype)
        info = np.iinfo(dtype)
        kept = np.clip(np.nan_to_num(array.astype("float64"), nan=0.0), info.min, info.max)
        return np.asarray(np.trunc(kept), dtype)

    def symbolic(value: Element) -> Element | None:
        # Sizes fit int32 and, as whole numbers, float32; 8 bits they may not.
        return value if dtype in ("int32", "float32") else None

    folded = fold(ctx, [x], dtype, numbers, symbolic)
    return ctx.call("cast", x, dtype=dtype) if folded is None else folded


@op("Cast")
def cast(ctx: OpContext, x: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Cast.html."""
    return convert_to(ctx, x, ctx.attrs.enum("to", DTYPES))


@op("CastLike")
def cast_like(ctx: OpContext, x: relax.Expr, target: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__CastLike.html."""
    return convert_to(ctx, x, ctx.dtype(target))


@op("Identity", sequences=True)
def identity(ctx: OpContext, x: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Identity.html."""
    return x
