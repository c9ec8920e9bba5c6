"""Arithmetic on symbolic sizes."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import tvm
from tvm import relax, tirx

Factors: TypeAlias = tuple[tirx.Expr, ...]


def byte_factors(dtype: str, shape: Sequence[tirx.Expr]) -> Factors:
    """What the number of bytes of a compact tensor is the product of."""
    return (tirx.const(np.dtype(dtype).itemsize, "int64"), *shape)


def row_factors(ty: relax.TensorType) -> Factors:
    """What the bytes of one row of a tensor, along its first axis, are the product of."""
    return byte_factors(str(ty.dtype), ty.shape.values[1:])


def product(factors: Factors) -> tirx.Expr:
    """The simplified product."""
    return tvm.sym.Analyzer().simplify(functools.reduce(operator.mul, factors))


def byte_size(ty: relax.TensorType) -> tirx.Expr:
    """The number of bytes of a compact tensor."""
    return product(byte_factors(str(ty.dtype), ty.shape.values))


def free_sizes(size: tirx.Expr) -> set[tirx.Var]:
    """The size variables in an expression."""
    return set() if isinstance(size, tirx.IntImm) else set(tirx.analysis.undefined_vars(size))


def type_sizes(ty: relax.TensorType) -> set[tirx.Var]:
    """The size variables in a tensor's shape."""
    return set().union(*(free_sizes(d) for d in ty.shape.values))


def substituted(size: tirx.Expr, values: Mapping[tirx.Var, tirx.Expr]) -> tirx.Expr:
    """The expression with size variables replaced, simplified."""
    analyzer = tvm.sym.Analyzer()
    for var in free_sizes(size):
        if var in values and not values[var].same_as(var):
            analyzer.bind(var, values[var])
    return analyzer.simplify(size)
