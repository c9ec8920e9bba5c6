"""Random numbers, one for each position: the same for any number of threads.

Number ``n`` of a seed is what splitmix64 (https://prng.di.unimi.it/splitmix64.c) gives after ``n``
steps, which it can be asked for directly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import te, tirx
from tvm.tirx import Buffer, Expr, Stmt

from rten_aot.dialect import vector_math
from rten_aot.dialect.direct import direct
from rten_aot.dialect.loops import flat_store, int64
from rten_aot.dialect.registry import Pattern, define

FACTORS = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""What splitmix64 multiplies by. Kernels get them as a tensor of int64: TVM folds formulas with
unsigned constants of this size to wrong ones."""


@define("fresh_seed", pattern=Pattern.OPAQUE, pure=False)
def fresh_seed(size: list[Expr], *, node: int) -> te.Tensor:
    """A seed, an int64 in a tensor of ``size`` 1, that differs by node, run and handle."""

    def body(_ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        call = tirx.call_extern("int64", "rten_aot_seed", tirx.const(node, "int32"))
        return flat_store(outs[0], 0, call)

    result = direct([size], [], body, ["int64"], "fresh_seed")
    assert isinstance(result, te.Tensor)
    return result


@define("random_uniform", pattern=Pattern.INJECTIVE)
def random_uniform(
    seed: te.Tensor, factors: te.Tensor, size: list[Expr], *, low: float, high: float
) -> te.Tensor:
    """Numbers in [low, high)."""
    bottom, top = tirx.const(low, "float32"), tirx.const(high, "float32")

    def element(i: Expr) -> Expr:
        value = bottom + _unit(seed, factors, i, 0) * (top - bottom)
        # Rounding may lead to the upper bound, which is not one of the numbers.
        return tirx.Select(value < top, value, bottom)

    return te.compute(size, element, name="random_uniform")


@define("random_normal", pattern=Pattern.INJECTIVE)
def random_normal(
    seed: te.Tensor, factors: te.Tensor, size: list[Expr], *, mean: float, scale: float
) -> te.Tensor:
    """Normally distributed numbers of this mean and standard deviation, by Box and Muller."""

    def element(i: Expr) -> Expr:
        odd = tirx.floormod(i, int64(2))
        first = i - odd
        # In (0, 1], since there is no logarithm of 0.
        distance = tirx.const(1.0, "float32") - _unit(seed, factors, first, 0)
        radius = tirx.sqrt(tirx.const(-2.0, "float32") * vector_math.log(distance))
        quarter = tirx.Cast("float32", odd) * tirx.const(0.25, "float32")
        turn = _unit(seed, factors, first, 1) - quarter
        return tirx.const(mean, "float32") + tirx.const(scale, "float32") * (radius * _wave(turn))

    return te.compute(size, element, name="random_normal")


def _wave(turn: Expr) -> Expr:
    """The cosine of an angle in [-1/4, 1) turns."""

    def f32(value: float) -> Expr:
        return tirx.const(value, "float32")

    near = tirx.Select(turn < f32(0.5), turn, turn - f32(1.0))
    # cos(a) = sin(1/4 turn - |a|), where the sine's argument is a quarter turn at most.
    x = (f32(0.25) - tirx.abs(near)) * f32(2 * math.pi)
    square = x * x
    series = f32(-1 / math.factorial(11))
    for k in (9, 7, 5, 3, 1):
        series = series * square + f32((-1) ** (k // 2) / math.factorial(k))
    return x * series


def _u64(value: Expr | int) -> Expr:
    return tirx.const(value, "uint64") if isinstance(value, int) else tirx.Cast("uint64", value)


def _unit(seed: te.Tensor, factors: te.Tensor, i: Expr, offset: int) -> Expr:
    """Number ``i + offset`` of the seed, in [0, 1)."""
    gamma, first, second = (_u64(factors(int64(k))) for k in range(3))
    z = _u64(seed(int64(0))) + _u64(i + int64(1 + offset)) * gamma
    z = (z ^ (z >> _u64(30))) * first
    z = (z ^ (z >> _u64(27))) * second
    z = z ^ (z >> _u64(31))
    # 24 bits are what float32 holds.
    bits = tirx.Cast("int32", z >> _u64(40))
    return tirx.Cast("float32", bits) * tirx.const(2.0**-24, "float32")
