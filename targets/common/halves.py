"""Weights stored as float16: loads of them, and their way to float32 where no instruction is.

Numbers are computed in float32: every load of a float16 number stands in a conversion.
"""

from __future__ import annotations

from tvm import tirx
from tvm.ir import Expr, TensorLoad

from rten_aot.targets.base import Machine
from rten_aot.targets.common.expr import Rewriter, dtype_of
from rten_aot.targets.common.stmts import rewrite_stmt

_HALF = "float16"
_SIGN_AND_REST = -0x70002000
"""In 32 bits, those of a float16 number that was shifted to where float32 has its exponent."""
_SHIFT = 13
"""How many more bits of the fraction float32 has."""
_SCALE = 2.0**112
"""What the exponents of float32 and float16 differ by."""


def stored_load(value: Expr) -> TensorLoad | None:
    """The load of a weight, which may be one of float16 that is converted."""
    if isinstance(value, tirx.Cast) and dtype_of(value.value) == _HALF:
        value = value.value
    return value if isinstance(value, TensorLoad) else None


def widened(load: Expr) -> Expr:
    """What was loaded of a weight, as a number to compute with."""
    return tirx.Cast("float32", load) if dtype_of(load) == _HALF else load


def with_conversions(func: tirx.PrimFunc, machine: Machine) -> tirx.PrimFunc:
    """The function, with conversions from float16 written out for machines without them.

    LLVM would call a function of the compiler's library there, number by number.
    """
    if machine.halves or not any(_is_half(param) for param in func.params):
        return func

    def replace(node: Expr) -> Expr | None:
        if isinstance(node, tirx.Cast) and dtype_of(node.value) == _HALF:
            return _converted(node.value)
        return None

    return func.with_body(rewrite_stmt(func.body, Rewriter(replace)))


def _is_half(param: tirx.Var) -> bool:
    return isinstance(param.ty, tirx.BufferType) and str(param.ty.dtype) == _HALF


def _converted(half: Expr) -> Expr:
    """A finite float16 number as float32.

    Sign, exponent and fraction go to their places in float32, whose exponents count from another
    number; multiplying by a power of two makes up for that, and is right for subnormal ones too.
    """
    wide = tirx.Cast("int32", tirx.reinterpret("int16", half))  # the sign in all upper bits
    moved = (wide << tirx.const(_SHIFT, "int32")) & tirx.const(_SIGN_AND_REST, "int32")
    return tirx.reinterpret("float32", moved) * tirx.const(_SCALE, "float32")
