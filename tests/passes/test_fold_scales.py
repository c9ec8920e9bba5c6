"""FoldScales: what folds into a convolution, and what must not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax

from rten_aot.passes.fold_scales import fold_scales, per_channel
from rten_aot.passes.pipeline import remove_unused
from tests.passes.modules import (
    Array,
    Body,
    assert_equivalent,
    assert_same,
    const,
    is_same,
    module,
    ops,
    random,
    shape,
    tensor,
)

WEIGHT = random(4, 3, 2, 2)
FACTOR, TERM, SECOND = (random(4, 1, 1, seed=seed) for seed in (1, 2, 3))
X = random(2, 3, 5, 4, seed=4)


def scaled(weight: Array, factor: Array, axis: int = 0) -> Array:
    along = [1] * weight.ndim
    along[axis] = -1
    return (weight.astype(np.float64) * factor.reshape(along)).astype(np.float32)


def folded(build: Callable[..., object]) -> tvm.IRModule:
    return remove_unused(fold_scales(module(build, tensor("x", 2, 3, 5, 4))))


def check(before: Callable[..., object], after: Callable[..., object]) -> None:
    got = folded(before)
    assert_same(got, module(after, tensor("x", 2, 3, 5, 4)))
    assert_equivalent(got, module(before, tensor("x", 2, 3, 5, 4)), X, tolerance=2e-5)


def test_a_factor_goes_into_the_weights() -> None:
    check(
        lambda b, x: b.call("multiply", b.conv(x, const(WEIGHT)), const(FACTOR)),
        lambda b, x: b.conv(x, const(scaled(WEIGHT, FACTOR))),
    )


def test_the_constant_may_come_first() -> None:
    check(
        lambda b, x: b.call("multiply", const(FACTOR), b.conv(x, const(WEIGHT))),
        lambda b, x: b.conv(x, const(scaled(WEIGHT, FACTOR))),
    )


@pytest.mark.parametrize("sizes", [(), (1,), (1, 1, 1), (1, 1, 1, 1)])
def test_one_factor_for_all_channels(sizes: tuple[int, ...]) -> None:
    factor = np.full(sizes, 0.5, np.float32)
    check(
        lambda b, x: b.call("multiply", b.conv(x, const(WEIGHT)), const(factor)),
        lambda b, x: b.conv(x, const(WEIGHT * np.float32(0.5))),
    )


def test_batch_normalisation_after_a_biased_convolution() -> None:
    def before(b: Body, x: relax.Var) -> relax.Var:
        y = b.call("add", b.conv(x, const(WEIGHT), pads=(1, 0, 0, 1)), const(TERM))
        return b.call("add", b.call("multiply", y, const(FACTOR[None])), const(SECOND))

    def after(b: Body, x: relax.Var) -> relax.Var:
        y = b.conv(x, const(scaled(WEIGHT, FACTOR)), pads=(1, 0, 0, 1))
        return b.call("add", y, const(TERM * FACTOR[None] + SECOND))

    check(before, after)


def test_groups_keep_their_own_channels() -> None:
    weight = random(6, 1, 2, 2)
    factor = random(6, 1, 1, seed=1)
    check(
        lambda b, x: b.call("multiply", b.conv(x, const(weight), groups=3), const(factor)),
        lambda b, x: b.conv(x, const(scaled(weight, factor)), groups=3),
    )


def transposed(b: Body, x: relax.Expr, weight: Array, groups: int) -> relax.Var:
    return b.call(
        "conv_transpose",
        x,
        const(weight),
        shape(0, 0, 0, 0),
        strides=[2, 2],
        dilations=[1, 1],
        output_padding=[0, 0],
        groups=groups,
    )


def test_transposed_convolutions_have_their_channels_second() -> None:
    weight = random(3, 4, 2, 2)
    check(
        lambda b, x: b.call("multiply", transposed(b, x, weight, 1), const(FACTOR)),
        lambda b, x: transposed(b, x, scaled(weight, FACTOR, axis=1), 1),
    )


def unfolded(build: Callable[..., object]) -> bool:
    mod = module(build, tensor("x", 2, 3, 5, 4))
    return is_same(fold_scales(mod), mod)


def test_grouped_transposed_convolutions_are_left_alone() -> None:
    weight, factor = random(3, 1, 2, 2), random(3, 1, 1)
    assert unfolded(lambda b, x: b.call("multiply", transposed(b, x, weight, 3), const(factor)))


def test_a_convolution_with_other_users_stays() -> None:
    def build(b: Body, x: relax.Var) -> list[relax.Expr]:
        y = b.conv(x, const(WEIGHT))
        return [b.call("multiply", y, const(FACTOR)), y]

    assert unfolded(build)


def test_a_biased_convolution_with_other_users_stays() -> None:
    def build(b: Body, x: relax.Var) -> list[relax.Expr]:
        y = b.conv(x, const(WEIGHT))
        z = b.call("add", y, const(TERM))
        return [b.call("multiply", z, const(FACTOR)), b.call("relu", y)]

    assert unfolded(build)


@pytest.mark.parametrize("sizes", [(4, 3), (1, 4, 4, 1), (2, 4, 1, 1), (1, 1, 4, 1, 1), (3,)])
def test_factors_that_differ_along_other_axes_stay(sizes: tuple[int, ...]) -> None:
    assert unfolded(
        lambda b, x: b.call("multiply", b.conv(x, const(WEIGHT)), const(random(*sizes)))
    )


def test_a_factor_that_makes_new_channels_stays() -> None:
    weight = random(1, 3, 2, 2)
    assert unfolded(lambda b, x: b.call("multiply", b.conv(x, const(weight)), const(FACTOR)))


def test_run_time_factors_and_weights_stay() -> None:
    def by_input(b: Body, x: relax.Var) -> relax.Var:
        y = b.conv(x, const(WEIGHT))
        return b.call("multiply", y, b.call("reduce_sum", x, axes=[0, 1, 2, 3]))

    def by_weight(b: Body, x: relax.Var) -> relax.Var:
        weight = b.call("exp", const(WEIGHT))
        return b.call("multiply", b.conv(x, weight), const(FACTOR))

    assert unfolded(by_input)
    assert unfolded(by_weight)


def test_sums_that_end_in_no_convolution_stay() -> None:
    term = random(3, 1, 1)
    assert unfolded(
        lambda b, x: b.call("add", b.call("add", b.call("relu", x), const(term)), const(term))
    )
    assert unfolded(
        lambda b, x: b.call("multiply", b.call("add", b.call("relu", x), const(term)), const(term))
    )


def test_two_normalisations_in_a_row() -> None:
    def before(b: Body, x: relax.Var) -> relax.Var:
        y = b.conv(x, const(WEIGHT))
        for _ in range(2):
            y = b.call("add", b.call("multiply", y, const(FACTOR)), const(TERM))
        return y

    got = folded(before)
    assert_equivalent(got, module(before, tensor("x", 2, 3, 5, 4)), X, tolerance=2e-5)
    assert ops(got) == ["conv", "add"]


def test_per_channel() -> None:
    assert per_channel(random(1, 4, 1, 1)) is not None
    assert per_channel(random(4, 1, 1)) is not None
    assert per_channel(random(4, 1)) is None
    assert per_channel(random(1, 1, 4, 1, 1)) is None
