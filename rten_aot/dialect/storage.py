"""Weights that are stored with fewer bits than they are computed with."""

from __future__ import annotations

from tvm import tirx

from rten_aot.dialect.scalar import dtype_of


def stored(value: tirx.Expr) -> tirx.Expr:
    """An element of a constant as a number to compute with: float16 is for storage alone."""
    return tirx.Cast("float32", value) if dtype_of(value) == "float16" else value
