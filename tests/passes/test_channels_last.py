"""ChannelsLast: where transposes go, which of them cancel, and that numbers stay the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from rten_aot.dialect.registry import AttrValue
from rten_aot.passes.channels_last import channels_last
from rten_aot.passes.pipeline import remove_unused
from tests.passes.modules import (
    Array,
    Body,
    assert_equivalent,
    assert_same,
    calls,
    const,
    module,
    ops,
    random,
    shape,
    tensor,
)

TO_LAST, TO_FIRST = [0, 2, 3, 1], [0, 3, 1, 2]
WEIGHT = random(4, 3, 3, 3)
NEXT = random(5, 4, 1, 1, seed=1)
X = random(2, 3, 6, 5, seed=2)


def converted(mod: tvm.IRModule) -> tvm.IRModule:
    return remove_unused(channels_last(mod, lambda _line: None))


def check(
    build: Callable[..., object], expected: Sequence[str], *inputs: Array, tolerance: float = 1e-5
) -> tvm.IRModule:
    """The operators in ``main`` are the expected ones and the numbers those of the source."""
    arrays = inputs or (X,)
    mod = module(build, *[tensor(f"x{i}", *a.shape) for i, a in enumerate(arrays)])
    got = converted(mod)
    assert ops(got) == list(expected)
    assert_equivalent(got, mod, *arrays, tolerance=tolerance)
    return got


def test_one_convolution() -> None:
    mod = module(lambda b, x: b.conv(x, const(WEIGHT), pads=(1, 0, 2, 1)), tensor("x", *X.shape))

    def expected(b: Body, x: relax.Var) -> relax.Var:
        last = b.call("transpose", x, axes=TO_LAST)
        y = b.conv(last, const(WEIGHT), pads=(1, 0, 2, 1), layout="NHWC")
        return b.call("transpose", y, axes=TO_FIRST)

    assert_same(channels_last(mod, lambda _line: None), module(expected, tensor("x", *X.shape)))


def test_chains_stay_channels_last() -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        y = b.call("relu", b.call("add", b.conv(x, const(WEIGHT)), const(random(4, 1, 1))))
        return b.call("relu", b.conv(y, const(NEXT)))

    check(build, ["transpose", "conv", "add", "relu", "conv", "relu", "transpose"])


def test_the_constant_of_a_sum_moves_its_axes() -> None:
    term = random(4, 1, 3)
    got = check(
        lambda b, x: b.call("add", b.conv(x, const(WEIGHT)), const(term)),
        ["transpose", "conv", "add", "transpose"],
    )
    (add,) = calls(got, "add")
    assert add.args[1].value.numpy().shape == (1, 1, 3, 4)


@pytest.mark.parametrize("sizes", [(), (1,), (3,), (4, 3), (4, 4, 3), (1, 4, 1, 1), (2, 4, 4, 3)])
def test_constants_of_any_rank_broadcast(sizes: tuple[int, ...]) -> None:
    check(
        lambda b, x: b.call("multiply", b.conv(x, const(WEIGHT)), const(random(*sizes))),
        ["transpose", "conv", "multiply", "transpose"],
    )


def test_an_input_of_lower_rank_broadcasts() -> None:
    def build(b: Body, x: relax.Var, y: relax.Var) -> relax.Var:
        return b.call("add", b.conv(x, const(WEIGHT)), y)

    # (4, 3) is rows and columns: it lies over the spatial axes, and no transpose is a view.
    check(build, ["transpose", "conv", "reshape", "reshape", "add", "transpose"], X, random(4, 3))


def test_a_residual_sum_has_one_transpose() -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        y = b.conv(x, const(WEIGHT), pads=(1, 1, 1, 1))
        z = b.conv(y, const(random(4, 4, 3, 3)), pads=(1, 1, 1, 1))
        return b.call("add", y, z)

    check(build, ["transpose", "conv", "conv", "add", "transpose"], tolerance=1e-4)


def test_both_forms_are_made_once() -> None:
    def build(b: Body, x: relax.Var) -> list[relax.Var]:
        y = b.conv(x, const(WEIGHT))
        return [y, b.call("transpose", y, axes=[1, 0, 2, 3]), b.conv(x, const(WEIGHT))]

    check(build, ["transpose", "conv", "transpose", "conv", "transpose", "transpose"])


def test_elementwise_work_without_convolutions_stays() -> None:
    mod = module(
        lambda b, x: b.call("relu", b.call("add", x, const(random(3, 1, 1)))),
        tensor("x", *X.shape),
    )
    assert_same(channels_last(mod, lambda _line: None), mod)


@pytest.mark.parametrize(
    ("name", "attrs", "last"),
    [
        ("softmax", {"axis": 1}, "transpose"),
        ("softmax", {"axis": 3}, "transpose"),
        ("log_softmax", {"axis": 2}, "transpose"),
        ("reduce_sum", {"axes": [2]}, "transpose"),
        ("cumsum", {"axis": 1}, "transpose"),
        ("arg_min", {"axis": 3}, "transpose"),
        ("normalize", {"axes": [2, 3], "epsilon": 1e-5}, "transpose"),
        # What is left has one channel or one pixel: its transpose is a view.
        ("reduce_mean", {"axes": [2, 3]}, "reshape"),
        ("reduce_max", {"axes": [0, 1, 3]}, "reshape"),
        ("arg_max", {"axis": 1}, "reshape"),
    ],
)
def test_axes_follow(name: str, attrs: dict[str, AttrValue], last: str) -> None:
    check(
        lambda b, x: b.call(name, b.conv(x, const(WEIGHT)), **attrs),
        ["transpose", "conv", name, last],
    )


@pytest.mark.parametrize("axis", range(4))
def test_concat_along_any_axis(axis: int) -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        y = b.conv(x, const(WEIGHT))
        return b.call("concat", y, b.call("relu", y), y, axis=axis)

    check(build, ["transpose", "conv", "relu", "concat", "transpose"])


def test_slices_along_channels_and_columns() -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        y = b.conv(x, const(WEIGHT))
        return b.call("slice", y, shape(1, 0), shape(2, 2), axes=[1, 3], steps=[2, 2])

    check(build, ["transpose", "conv", "slice", "transpose"])


def test_padding_of_any_axis() -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        y = b.conv(x, const(WEIGHT))
        return b.call(
            "pad", y, shape(1, 2), shape(0, -1), axes=[1, 3], mode="constant", constant=7.0
        )

    check(build, ["transpose", "conv", "pad", "transpose"])


def test_padding_with_a_value_that_is_an_operand() -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        y = b.conv(x, const(WEIGHT))
        return b.call("pad", y, shape(1), shape(1), const(3.0), axes=[2], mode="constant")

    check(build, ["transpose", "conv", "pad", "transpose"])


def test_quantisation_along_channels() -> None:
    scale, zero = np.array([0.1, 0.2, 0.3, 0.4], np.float32), np.array([1, 2, 3, 4], np.uint8)

    def build(b: Body, x: relax.Var) -> relax.Var:
        y = b.conv(x, const(WEIGHT))
        q = b.call("quantize_linear", y, const(scale), const(zero, "uint8"), axis=1, dtype="uint8")
        return b.call("dequantize_linear", q, const(scale), const(zero, "uint8"), axis=1)

    check(
        build,
        ["transpose", "conv", "quantize_linear", "dequantize_linear", "transpose"],
        tolerance=0.41,
    )


@pytest.mark.parametrize(
    ("name", "attrs"), [("max_pool", {}), ("average_pool", {"count_include_pad": False})]
)
def test_pooling(name: str, attrs: dict[str, AttrValue]) -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        window: dict[str, AttrValue] = {
            "kernel": [2, 3], "strides": [1, 2], "dilations": [1, 1]
        }  # fmt: skip
        y = b.conv(x, const(WEIGHT))
        return b.call(name, y, shape(1, 0, 0, 1), shape(4, 1), **window, **attrs)

    check(build, ["transpose", "conv", name, "transpose"])


def test_global_pooling_ends_in_a_view() -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        y = b.call("global_average_pool", b.conv(x, const(WEIGHT)))
        return b.reshape(y, 2, 4)

    check(build, ["transpose", "conv", "global_average_pool", "reshape"])


def test_resizing() -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        y = b.conv(x, const(WEIGHT))
        return b.call("resize", y, shape(8, 5), mode="linear", coordinates="half_pixel")

    check(build, ["transpose", "conv", "resize", "transpose"])


def test_grouped_and_depthwise_convolutions() -> None:
    weight = random(6, 1, 2, 2)
    check(lambda b, x: b.conv(x, const(weight), groups=3), ["transpose", "conv", "transpose"])


def test_transposed_convolutions() -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        return b.call(
            "conv_transpose",
            x,
            const(random(3, 2, 3, 2)),
            shape(1, 0, 0, 1),
            strides=[2, 1],
            dilations=[1, 2],
            output_padding=[1, 0],
            groups=1,
        )

    check(build, ["transpose", "conv_transpose", "transpose"])


def test_transposes_of_the_model_cancel() -> None:
    """As in models that came from channels-last frameworks."""

    def build(b: Body, x: relax.Var) -> relax.Var:
        y = b.conv(b.call("transpose", x, axes=TO_FIRST), const(WEIGHT))
        return b.call("transpose", b.call("relu", y), axes=TO_LAST)

    check(build, ["conv", "relu"], random(2, 6, 5, 3))


def test_another_transpose_is_composed_with_the_layout() -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        return b.call("transpose", b.conv(x, const(WEIGHT)), axes=[0, 2, 1, 3])

    got = check(build, ["transpose", "conv", "transpose"])
    assert len(calls(got, "transpose")) == 2


def test_flattening_needs_the_order_of_the_model() -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        return b.reshape(b.conv(x, const(WEIGHT)), 2, 48)

    check(build, ["transpose", "conv", "transpose", "reshape"])


def test_reshapes_that_add_and_remove_ones() -> None:
    def build(b: Body, x: relax.Var) -> list[relax.Var]:
        y = b.conv(x, const(random(4, 3, 6, 1)))
        squeezed = b.call("relu", b.reshape(y, 2, 4, 5))
        return [b.call("relu", b.reshape(squeezed, 2, 4, 5, 1))]

    got = converted(module(build, tensor("x", *X.shape)))
    assert ops(got).count("transpose") == 2
    assert_equivalent(got, module(build, tensor("x", *X.shape)), X, tolerance=1e-5)


def test_channels_that_split_are_brought_back_to_the_order_of_the_model() -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        y = b.reshape(b.conv(x, const(WEIGHT)), 2, 2, 2, 4, 3)
        return b.reshape(b.call("transpose", y, axes=[0, 2, 1, 3, 4]), 2, 4, 4, 3)

    check(build, ["transpose", "conv", "transpose", "reshape", "transpose", "reshape"])


def test_an_input_with_one_channel_is_a_view() -> None:
    mod = module(lambda b, x: b.conv(x, const(random(4, 1, 3, 3))), tensor("x", 2, 1, 6, 5))
    assert ops(converted(mod)) == ["reshape", "conv", "transpose"]


def test_convolutions_along_one_axis_work() -> None:
    """1-D convolutions come as 2-D ones of height 1."""

    def build(b: Body, x: relax.Var) -> relax.Var:
        y = b.conv(b.reshape(x, 2, 3, 1, 8), const(random(4, 3, 1, 3)))
        return b.call("relu", b.reshape(y, 2, 4, 6))

    mod = module(build, tensor("x", 2, 3, 8))
    assert_equivalent(converted(mod), mod, random(2, 3, 8), tolerance=1e-5)


def test_symbolic_sizes() -> None:
    n, h, w = (tirx.Var(name, "int64") for name in "nhw")

    def build(b: Body, x: relax.Var) -> relax.Var:
        y = b.conv(x, const(WEIGHT), pads=(1, 1, 1, 1))
        return b.call("add", b.call("softmax", y, axis=1), b.call("relu", y))

    mod = module(build, tensor("x", n, 3, h, w))
    got = converted(mod)
    assert ops(got) == ["transpose", "conv", "softmax", "relu", "add", "transpose"]
    for sizes in ((1, 3, 4, 5), (3, 3, 1, 7)):
        assert_equivalent(got, mod, random(*sizes), tolerance=1e-5)


def test_explain_names_the_transposes_that_cost_something() -> None:
    lines: list[str] = []

    def build(b: Body, x: relax.Var) -> relax.Var:
        return b.conv(x, const(random(4, 1, 3, 3)))

    channels_last(module(build, tensor("x", 2, 1, 6, 5)), lines.append)
    assert lines == ["transpose to channels-first: 2x4x3x4"]
