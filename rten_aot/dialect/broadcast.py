"""Multidirectional broadcasting, where whether a size is 1 may be known at run time only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import tvm_ffi
from tvm import te, tirx
from tvm.sym import Analyzer

from rten_aot.errors import ShapeError

Scalar = Callable[..., tirx.Expr]
"""A function of one element of each operand."""


def index(value: int) -> tirx.Expr:
    """A constant size or index."""
    return tirx.const(value, "int64")


def static(size: tirx.Expr) -> int | None:
    """The size as a Python int, None if it is symbolic."""
    return int(size.value) if isinstance(size, tirx.IntImm) else None


def same(a: tirx.Expr, b: tirx.Expr, analyzer: Analyzer | None = None) -> bool:
    """Whether two sizes are known to be equal, given that what was broadcast does fit."""
    analyzer = analyzer or Analyzer()
    parts_a, parts_b = _parts(a), _parts(b)
    if len(parts_a) == len(parts_b) == 1:
        return bool(analyzer.can_prove_equal(a, b))
    return all(_is_part(p, parts_b, analyzer) for p in parts_a) and all(
        _is_part(p, parts_a, analyzer) for p in parts_b
    )


def _parts(size: tirx.Expr) -> list[tirx.Expr]:
    """The sizes that ``broadcast_size`` has made one of: the first of them that is not 1."""
    parts = []
    while isinstance(size, tirx.Select) and tvm_ffi.structural_equal(
        size.condition, tirx.EQ(size.false_value, index(1))
    ):
        parts.append(size.false_value)
        size = size.true_value
    return [*parts, size]


def _is_part(size: tirx.Expr, parts: Sequence[tirx.Expr], analyzer: Analyzer) -> bool:
    return any(analyzer.can_prove_equal(size, p) for p in parts)


def broadcast_size(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """The size that two aligned axes have together.

    If neither is known, one of them being 1 is decided at run time. That they are equal where
    neither is 1 is for the caller to check; only fixed sizes that contradict each other raise
    ``ShapeError``.
    """
    fixed_a, fixed_b = static(a), static(b)
    if fixed_b == 1 or same(a, b):
        return a
    if fixed_a == 1:
        return b
    if fixed_a is not None and fixed_b is not None:
        raise ShapeError(f"sizes {fixed_a} and {fixed_b} cannot be broadcast")
    if fixed_a is not None:
        return a
    if fixed_b is not None:
        return b
    # One choice for each different size: nested choices would grow exponentially along a chain.
    analyzer, parts = Analyzer(), _parts(a)
    parts += [p for p in _parts(b) if not _is_part(p, parts, analyzer)]
    *others, result = parts
    for part in reversed(others):
        result = tirx.Select(tirx.EQ(part, index(1)), result, part)
    return result


def broadcast_shape(*shapes: Sequence[tirx.Expr]) -> list[tirx.Expr]:
    """The shape that operands of these shapes have together."""

    def pair(a: Sequence[tirx.Expr], b: Sequence[tirx.Expr]) -> list[tirx.Expr]:
        rank = max(len(a), len(b))
        padded_a = [index(1)] * (rank - len(a)) + list(a)
        padded_b = [index(1)] * (rank - len(b)) + list(b)
        return [broadcast_size(x, y) for x, y in zip(padded_a, padded_b, strict=True)]

    return reduce(pair, shapes, [])


def broadcast_indices(
    own: Sequence[tirx.Expr],
    shape: Sequence[tirx.Expr],
    indices: Sequence[tirx.Expr],
) -> list[tirx.Expr]:
    """Where an operand of shape ``own`` holds the element at ``indices`` of the broadcast shape."""
    skipped = len(shape) - len(own)
    result = []
    for size, full, i in zip(own, shape[skipped:], indices[skipped:], strict=True):
        if same(size, full):
            result.append(i)
        elif static(size) is None:
            result.append(tirx.Select(tirx.EQ(size, index(1)), index(0), i))
        else:
            result.append(index(0) if static(size) == 1 else i)
    return result


def broadcast_map(scalar: Scalar, *operands: te.Tensor, name: str) -> te.Tensor:
    """``scalar`` of the corresponding elements of all operands."""
    shape = broadcast_shape(*[x.shape for x in operands])

    def element(*indices: tirx.Var) -> tirx.Expr:
        return scalar(*[x(*broadcast_indices(list(x.shape), shape, indices)) for x in operands])

    return te.compute(tuple(shape), element, name=name)
