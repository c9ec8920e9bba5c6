"""Fuse: which operators share a kernel."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm
from tvm import relax, tirx

from rten_aot.passes.fuse import MAX_OPERATORS
from rten_aot.passes.pipeline import lower
from tests.passes.modules import (
    Body,
    assert_equivalent,
    const,
    module,
    ops,
    random,
    run,
    tensor,
)

WEIGHT = random(4, 3, 3, 3)
X = random(1, 3, 6, 5, seed=1)


def fused(build: Callable[..., object], *params: relax.Var) -> tvm.IRModule:
    mod = lower(module(build, *params or (tensor("x", *X.shape),)), fused=True)
    relax.analysis.well_formed(mod)
    return mod


def test_bias_and_activation_join_the_convolution() -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        y = b.call("add", b.conv(x, const(WEIGHT)), const(random(4, 1, 1)))
        return b.call("relu", y)

    mod = fused(build)
    assert ops(mod) == ["fused_conv_add_relu"]
    source = module(build, tensor("x", *X.shape))
    (a,), (b,) = run(source, X, fused=True), run(source, X)
    assert abs(a - b).max() <= 1e-6


def test_a_residual_sum_joins_the_later_convolution() -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        y = b.call("relu", b.conv(x, const(WEIGHT), pads=(1, 1, 1, 1)))
        z = b.conv(y, const(random(4, 4, 3, 3)), pads=(1, 1, 1, 1))
        return b.call("relu", b.call("add", y, z))

    assert ops(fused(build)) == ["fused_conv_relu", "fused_conv1_add_relu"]


def test_a_gate_that_is_stretched_over_the_plane_starts_a_kernel() -> None:
    """Else the convolution that makes the gate would be computed for the wrong elements."""

    def build(b: Body, x: relax.Var) -> relax.Var:
        gate = b.call("sigmoid", b.conv(x, const(random(3, 3, 6, 5))))
        return b.call("relu", b.call("multiply", x, gate))

    assert ops(fused(build)) == ["fused_conv_sigmoid", "fused_multiply_relu"]


def test_two_convolutions_are_two_kernels() -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        return b.conv(b.conv(x, const(WEIGHT)), const(random(5, 4, 1, 1)))

    assert ops(fused(build)) == ["conv", "conv1"]


def test_a_result_that_others_need_ends_its_kernel() -> None:
    def build(b: Body, x: relax.Var) -> list[relax.Var]:
        y = b.conv(x, const(WEIGHT))
        return [y, b.call("relu", y)]

    assert ops(fused(build)) == ["conv", "relu"]


def test_elementwise_operators_share_one_kernel() -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        return b.call("multiply", b.call("sigmoid", x), b.call("negative", b.call("abs", x)))

    (name,) = ops(fused(build))
    assert name.startswith("fused_")


@pytest.mark.parametrize("name", ["cumsum"])
def test_opaque_kernels_stay_alone(name: str) -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        return b.call("relu", b.call(name, b.call("abs", x), axis=1))

    assert ops(fused(build)) == ["abs", name, "relu"]


def test_reshapes_stay_views() -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        return b.call("relu", b.reshape(b.call("abs", x), 3, 30))

    assert ops(fused(build)) == ["abs", "reshape", "relu"]


def test_symbolic_sizes_reach_the_fused_kernel() -> None:
    n = tirx.Var("n", "int64")

    def build(b: Body, x: relax.Var) -> relax.Var:
        return b.call("relu", b.call("add", x, b.call("reduce_sum", x, axes=[0])))

    mod = module(build, tensor("x", n, 3))
    for rows in (1, 4):
        x = random(rows, 3)
        (a,), (b,) = run(mod, x, fused=True), run(mod, x)
        assert abs(a - b).max() <= 1e-6


def test_long_chains_become_several_kernels() -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        for _ in range(100):
            x = b.call("relu", x)
        return x

    assert len(ops(fused(build))) == -(-100 // MAX_OPERATORS)


def test_what_nothing_uses_is_gone() -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        b.call("exp", x)
        return b.call("relu", x)

    assert ops(fused(build)) == ["relu"]
    assert_equivalent(*[module(build, tensor("x", *X.shape))] * 2, X)
