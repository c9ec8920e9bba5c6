"""Sequences of tensors, which exist at compile time only."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax


@dataclass(frozen=True, eq=False)
class TensorSequence:
    """Tensors of one element type in order; stands where one tensor would."""

    items: tuple[relax.Expr, ...]
