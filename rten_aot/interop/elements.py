"""Element types in ONNX, and those in which ONNX Runtime's CPU kernels compute an operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import numpy as np
import onnx

from rten_aot.format import DType

Element: TypeAlias = DType | Literal["int64", "bool", "float64"]

OPSET = 21
"""The oldest operator set that has all of the format's operators with all of their settings."""

_LETTERS: Mapping[str, Element] = {
    "f": "float32",
    "d": "float64",
    "i": "int32",
    "l": "int64",
    "b": "int8",
    "B": "uint8",
}

# What to try in place of a type that an operator has no kernel for; each holds all its values.
_WIDER: Mapping[DType, tuple[Element, ...]] = {
    "float32": ("float64",),
    "int32": ("int64", "float64"),
    "int8": ("int32", "int64", "float32"),
    "uint8": ("int32", "int64", "float32"),
}

# Operators that RTen computes in more types than ONNX Runtime 1.18 to 1.32 (opset 21) does.
_KERNELS: Mapping[str, str] = {
    "Add": "fdil",
    "Abs": "fdilbB",
    "CumSum": "fdil",
    "DepthToSpace": "fd",
    "Div": "fdil",
    "Einsum": "fdil",
    "Equal": "fdil",
    "EyeLike": "fdil",
    "Gemm": "fd",
    "Greater": "fdil",
    "GreaterOrEqual": "fdil",
    "Less": "fdil",
    "LessOrEqual": "fdil",
    "MatMul": "fdil",
    "Max": "fdil",
    "MaxPool": "fdbB",
    "Mean": "f",
    "Min": "fdil",
    "Mul": "fdil",
    "Neg": "fdil",
    "NonZero": "filB",
    "Pow": "fdil",
    "QuantizeLinear": "f",
    # ONNX Runtime 1.32 takes sizes for int64 when it infers the shape of Range.
    "Range": "fdl",
    "ReduceL2": "fdil",
    "ReduceMean": "fdl",
    # Sums and products of int32 saturate.
    "ReduceProd": "fdl",
    "ReduceSum": "fdl",
    "ReduceSumSquare": "fdl",
    "Relu": "fdi",
    "Sub": "fdil",
    "TopK": "fdil",
    "Trilu": "fdil",
    "Where": "filB",
}


def proto_type(element: Element) -> int:
    """The type's number in ONNX."""
    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(element)))


def kernel_type(op: str, dtype: DType) -> Element:
    """The type in which operands of ``dtype`` are to be given to an operator."""
    letters = _KERNELS.get(op)
    if letters is None:
        return dtype
    known = [_LETTERS[letter] for letter in letters]
    return next((e for e in (dtype, *_WIDER[dtype]) if e in known), dtype)
