"""ProductsOfPlanes: which convolutions become matrix products, and which stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import tvm
from tvm import relax, tirx

from rten_aot.passes.pipeline import remove_unused
from rten_aot.passes.products_of_planes import products_of_planes
from tests.passes.modules import (
    Body,
    assert_equivalent,
    const,
    module,
    ops,
    random,
    tensor,
)

X = (2, 6, 12, 13)
BIAS = random(4, 1, 1, seed=3)


def products(
    build: Callable[..., object], *shapes: Sequence[int], notes: list[str] | None = None
) -> tvm.IRModule:
    note = (lambda _line: None) if notes is None else notes.append
    inputs = [tensor(f"x{i}", *s) for i, s in enumerate(shapes)]
    return remove_unused(products_of_planes(module(build, *inputs), note))


def check(build: Callable[..., object], expected: Sequence[str], *shapes: Sequence[int]) -> None:
    got = products(build, *shapes)
    assert ops(got) == list(expected)
    inputs = [random(*s, seed=i) for i, s in enumerate(shapes)]
    whole = module(build, *[tensor(f"x{i}", *s) for i, s in enumerate(shapes)])
    assert_equivalent(got, whole, *inputs, tolerance=2e-6)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    "bias", [BIAS, BIAS[None], BIAS[:1, 0, 0], BIAS[0, 0, 0]], ids=lambda b: str(b.shape)
)
def test_a_convolution_with_bias_and_activation(groups: int, bias: object) -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        y = b.conv(x, const(random(4, 6 // groups, 1, 1)), groups=groups)
        return b.call("relu", b.call("add", const(bias), y))

    check(build, ["reshape", "matmul", "add", "relu", "reshape"], X)
    notes: list[str] = []
    products(build, X, notes=notes)
    assert notes == ["product of planes in place of a convolution: 6->4 of 12x13"]


def test_strides_are_taken_first() -> None:
    check(
        lambda b, x: b.conv(x, const(random(4, 6, 1, 1)), strides=[2, 3]),
        ["slice", "reshape", "matmul", "reshape"],
        (1, 6, 25, 40),
    )


def test_one_channel_in_and_out() -> None:
    check(
        lambda b, x: b.call("add", b.conv(x, const(random(1, 1, 1, 1))), const(BIAS[:1])),
        ["reshape", "matmul", "add", "reshape"],
        (3, 1, 12, 12),
    )


def test_a_result_that_is_read_twice() -> None:
    def build(b: Body, x: relax.Var) -> list[relax.Var]:
        y = b.conv(x, const(random(4, 6, 1, 1)))
        return [y, b.call("relu", y), b.reshape(y, 2, 4 * 12 * 13)]

    got = products(build, X)
    assert "conv" not in ops(got)
    inputs = module(build, tensor("x0", *X))
    assert_equivalent(got, inputs, random(*X), tolerance=2e-6)


def test_after_an_elementwise_operator() -> None:
    check(
        lambda b, x: b.conv(b.call("relu", x), const(random(4, 6, 1, 1))),
        ["relu", "reshape", "matmul", "reshape"],
        X,
    )


def test_after_a_reshape() -> None:
    check(
        lambda b, x: b.conv(b.reshape(x, 1, 6, 200, 1), const(random(4, 6, 1, 1))),
        ["reshape", "reshape", "matmul", "reshape"],
        (1, 6, 200),
    )


def stays(build: Callable[..., object], *shapes: Sequence[int | tirx.Var]) -> None:
    inputs = [tensor(f"x{i}", *s) for i, s in enumerate(shapes)]
    assert "matmul" not in ops(products_of_planes(module(build, *inputs), lambda _line: None))


@pytest.mark.parametrize(
    ("shape", "kernel", "attrs"),
    [
        (X, (4, 6, 3, 3), {}),
        (X, (4, 6, 1, 1), {"pads": (0, 1, 0, 0)}),
        ((1, 6, 11, 11), (4, 6, 1, 1), {}),
        ((1, 6, 20, 20), (4, 6, 1, 1), {"strides": [2, 2]}),
        ((0, 6, 20, 20), (4, 6, 1, 1), {}),
        ((1, 0, 20, 20), (4, 0, 1, 1), {}),
        ((1, 6, tirx.Var("h", "int64"), 20), (4, 6, 1, 1), {}),
    ],
    ids=["window", "padding", "small", "small-by-strides", "no-batch", "no-channels", "symbolic"],
)
def test_convolutions_that_stay(
    shape: tuple[int, ...], kernel: tuple[int, ...], attrs: dict[str, object]
) -> None:
    stays(lambda b, x: b.conv(x, const(random(*kernel)), **attrs), shape)


def test_weights_that_only_a_run_knows() -> None:
    stays(lambda b, x, w: b.conv(x, w), X, (4, 6, 1, 1))


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("operands", [1, 2])
def test_long_chains(where: str, operands: int) -> None:
    """Each value is looked at once, however many ways lead to it."""

    def chain(b: Body, x: relax.Var) -> relax.Var:
        for _ in range(1500 if operands == 1 else 60):
            x = b.call("relu", x) if operands == 1 else b.call("multiply", x, x)
        return x

    def build(b: Body, x: relax.Var) -> relax.Var:
        if where == "before":
            x = chain(b, x)
        y = b.conv(x, const(random(4, 6, 1, 1)))
        return chain(b, y) if where == "after" else y

    assert "matmul" in ops(products(build, X))


def test_values_of_other_ranks_beside_it() -> None:
    def build(b: Body, x: relax.Var, v: relax.Var, s: relax.Var) -> list[relax.Var]:
        y = b.conv(x, const(random(4, 6, 1, 1)))
        return [y, b.call("relu", v), b.call("multiply", s, const(2.0))]

    assert "matmul" in ops(products(build, X, (3,), ()))


def test_among_channels_last_values() -> None:
    def before(b: Body, x: relax.Var) -> relax.Var:
        y = b.conv(x, const(random(6, 6, 3, 3)), pads=(1, 1, 1, 1))
        return b.conv(b.call("relu", y), const(random(4, 6, 1, 1)))

    def after(b: Body, x: relax.Var) -> relax.Var:
        y = b.call("relu", b.conv(x, const(random(6, 6, 1, 1))))
        return b.conv(y, const(random(4, 6, 3, 3)), pads=(1, 1, 1, 1))

    def to_reduction(b: Body, x: relax.Var) -> relax.Var:
        return b.call("softmax", b.conv(x, const(random(6, 6, 1, 1))), axis=1)

    for build in (before, after, to_reduction):
        stays(build, X)


def test_sums_with_another_picture() -> None:
    stays(lambda b, x: b.call("add", b.conv(x, const(random(6, 6, 1, 1))), x), X)


def test_a_constant_for_each_pixel() -> None:
    stays(
        lambda b, x: b.call("add", b.conv(x, const(random(4, 6, 1, 1))), const(random(12, 13))), X
    )
