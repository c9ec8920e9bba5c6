"""The words of CUDA for types, operators, functions and numbers."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping

from tvm import tirx

from rten_aot.errors import InternalError

TYPES: Mapping[str, str] = {
    "bool": "bool",
    "float32": "float",
    "float64": "double",
    "int8": "signed char",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
}
"""What an element type is in CUDA."""

OPERATORS: Mapping[type, str] = {
    tirx.Add: "+",
    tirx.Sub: "-",
    tirx.Mul: "*",
    tirx.Div: "/",
    tirx.Mod: "%",
    tirx.EQ: "==",
    tirx.NE: "!=",
    tirx.LT: "<",
    tirx.LE: "<=",
    tirx.GT: ">",
    tirx.GE: ">=",
    tirx.And: "&&",
    tirx.Or: "||",
    tirx.LShift: "<<",
    tirx.RShift: ">>",
    tirx.BitwiseAnd: "&",
    tirx.BitwiseOr: "|",
    tirx.BitwiseXor: "^",
}
BITWISE = {
    "shift_left": "<<",
    "shift_right": ">>",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
}
FUNCTIONS = {
    "ceil": "ceil",
    "cos": "cos",
    "erf": "erf",
    "exp": "exp",
    "exp2": "exp2",
    "floor": "floor",
    "fmod": "fmod",
    "log": "log",
    "log2": "log2",
    "nearbyint": "nearbyint",
    "llvm.nearbyint": "nearbyint",
    "pow": "pow",
    "rsqrt": "rsqrt",
    "sin": "sin",
    "sqrt": "sqrt",
    "tanh": "tanh",
    "trunc": "trunc",
}
"""Functions of floats, as <math.h> has them for double."""


def c_type(dtype: str) -> str:
    """The CUDA type of elements."""
    if dtype not in TYPES:
        raise InternalError(f"no CUDA type for {dtype}")
    return TYPES[dtype]


def float_text(value: float, dtype: str) -> str:
    """Exactly this number."""
    if math.isfinite(value):
        if dtype == "float32":
            (value,) = struct.unpack("<f", struct.pack("<f", value))
        text = value.hex()
        suffix = "f" if dtype == "float32" else ""
        return f"({text}{suffix})" if text.startswith("-") else f"{text}{suffix}"
    if dtype == "float32":
        return f"__int_as_float({struct.unpack('<i', struct.pack('<f', value))[0]})"
    return f"__longlong_as_double({struct.unpack('<q', struct.pack('<d', value))[0]}ll)"


def reinterpret_text(source: str, target: str, operand: str) -> str:
    """The bits of an element of one type as one of another."""
    match source, target:
        case "float32", "int32" | "uint32":
            return f"({c_type(target)})__float_as_int({operand})"
        case "int32" | "uint32", "float32":
            return f"__int_as_float((int){operand})"
        case "float64", "int64" | "uint64":
            return f"({c_type(target)})__double_as_longlong({operand})"
        case "int64" | "uint64", "float64":
            return f"__longlong_as_double((long long){operand})"
    if source.lstrip("u") == target.lstrip("u"):
        return f"({c_type(target)}){operand}"
    raise InternalError(f"no CUDA text for {source} taken as {target}")
