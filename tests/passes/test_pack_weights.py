"""Which operators take packed weights, and that numbers stay the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import rten_aot.dialect.attention
import rten_aot.dialect.conv
import rten_aot.dialect.matmul  # noqa: F401
from rten_aot.dialect.functions import bindings
from rten_aot.dialect.registry import attrs_of, call, op_def
from rten_aot.errors import CompileError
from rten_aot.passes.pack_weights import pack_conv, pack_gemm, pack_weights
from rten_aot.targets.common.choices import Choice
from tests.passes.modules import is_same
from tests.targets.anchors import AVX2, MACHINES, Array, ints, sym, tensor_type
from tests.targets.networks import module, operators, run


def packed(
    mod: tvm.IRModule,
    notes: list[str] | None = None,
    choices: Mapping[str, Choice] | None = None,
) -> tvm.IRModule:
    return pack_weights(mod, AVX2, (notes if notes is not None else []).append, choices)


def conv_module(w: Array, shape: Sequence[Any], **attrs: Any) -> tvm.IRModule:
    def build(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        full = {"strides": [1, 1], "dilations": [1, 1], "groups": 1, "layout": "NHWC", **attrs}
        return b.emit(call("conv", x, relax.const(w), ints(1, 1, 1, 1), **full))

    return module([tensor_type(shape)], build)


KEY = "conv 3->40 3x3 strides 1x1 dilations 1x1 pads 1x1x1x1 groups 1 image 1x8x8"
"""What ``conv_module(random(40, 3, 3, 3), [1, 8, 8, 3])`` computes."""


def calls_of(mod: tvm.IRModule) -> list[relax.Call]:
    """The calls of operators in ``main``."""
    return [value for _, value in bindings(mod["main"]) if op_def(value) is not None]


def random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype="float32")


def test_blocks_of_channels_are_padded_with_zeros() -> None:
    w = random(5, 2, 3, 3)
    result = pack_conv(w, 1, 4)
    assert result.shape == (1, 2, 3, 3, 2, 4)
    np.testing.assert_array_equal(result[0, 0, :, :, :, 3], w[3].transpose(1, 2, 0))
    np.testing.assert_array_equal(result[0, 1, :, :, :, 0], w[4].transpose(1, 2, 0))
    assert not result[0, 1, ..., 1:].any()


def test_blocks_of_columns_are_padded_with_zeros() -> None:
    w = random(3, 5)
    result = pack_gemm(w, 4)
    assert result.shape == (2, 3, 4)
    np.testing.assert_array_equal(result[0], w[:, :4])
    np.testing.assert_array_equal(result[1, :, 0], w[:, 4])
    assert not result[1, :, 1:].any()


def test_convolution() -> None:
    notes: list[str] = []
    mod = packed(conv_module(random(40, 3, 3, 3), [1, 8, 8, 3]), notes)
    assert operators(mod) == ["rten.conv_packed"]
    assert notes == [
        f"{KEY}: algorithm direct (too few channels for Winograd), "
        "width 16 (fewest passes, least padding)"
    ]


def test_records_are_followed() -> None:
    notes: list[str] = []
    mod = conv_module(random(40, 3, 3, 3), [1, 8, 8, 3])
    plain = packed(mod)
    choices = {KEY: Choice("winograd", width=24, rows=2, ahead=False), "gemm 1x2x3": Choice()}
    tuned = packed(mod, notes, choices)
    assert operators(tuned) == ["rten.conv_winograd"]
    assert notes == [
        f"{KEY}: algorithm winograd (tuned), width 24 (tuned)",
        "tuning: 1 of 2 records are of problems in this model",
    ]
    (shape,) = [c.args[1].ty.shape for c in calls_of(tuned)]
    assert [int(size) for size in shape] == [16, 2, 3, 24]
    (annotations,) = [attrs_of(c)["annotations"] for c in calls_of(tuned)]
    assert annotations == {
        "rten.key": KEY, "rten.choice.width": 24, "rten.choice.rows": 2, "rten.choice.ahead": 0,
    }  # fmt: skip
    for nothing in ({}, {"gemm 1x2x3": Choice(width=8)}, {KEY: Choice()}):
        assert is_same(packed(mod, None, nothing), plain)


def test_records_that_kernels_cannot_be_made_of() -> None:
    mod = conv_module(random(40, 3, 3, 3), [1, 8, 8, 3])
    with pytest.raises(CompileError) as caught:
        packed(mod, None, {KEY: Choice(width=12)})
    assert str(caught.value) == (
        f'tuning record "{KEY}", field "width": 12 is no whole number of vectors of 8'
    )
    with pytest.raises(CompileError, match=r'^tuning record "conv x": there is no such problem$'):
        packed(mod, None, {"conv x": Choice()})


def test_phases_of_a_transposed_convolution_may_use_winograd() -> None:
    w, x = random(3, 7, 3, 3), random(2, 5, 4, 3)

    def build(b: relax.BlockBuilder, v: relax.Expr) -> relax.Expr:
        geometry = {"strides": [1, 1], "dilations": [1, 1], "output_padding": [0, 0]}
        pads = ints(1, 0, 0, 1)
        return b.emit(
            call("conv_transpose", v, relax.const(w), pads, groups=1, layout="NHWC", **geometry)
        )

    key = "conv 3->7 3x3 strides 1x1 dilations 1x1 pads 1x2x2x1 groups 1 image 2x5x4"
    result = packed(module([tensor_type(x.shape)], build), None, {key: Choice("winograd")})
    assert operators(result) == ["rten.conv_winograd", "rten.interleave_phases"]
    (value,) = run(result, AVX2, [x])
    attrs = {
        "kernel": (3, 3), "strides": [1, 1], "dilations": [1, 1], "pads": [1, 0, 0, 1],
        "output_padding": [0, 0],
    }  # fmt: skip
    np.testing.assert_allclose(value, transposed(x, w, attrs), rtol=1e-5, atol=1e-5)


def test_keys() -> None:
    """What a problem is called, unknown sizes included."""
    n = sym("n")
    image = [n, 8, 9, 6]
    depthwise = conv_module(random(12, 1, 3, 2), image, groups=6, strides=[2, 1])
    grouped = conv_module(random(12, 2, 3, 2), image, groups=3, dilations=[1, 2])
    kernel = relax.const(random(4, 20))
    product = module([tensor_type([2, n, 4])], lambda b, x: b.emit(call("matmul", x, kernel)))
    matrices = module(
        [tensor_type([2, n, 4]), tensor_type([2, 20, 4])],
        lambda b, x, y: b.emit(call("matmul", x, y, transpose_b=True)),
    )
    axes = {"q_axes": [0, 2, 1], "k_axes": [0, 1, 2], "v_axes": [0, 1, 2], "out_axes": [0, 2, 1]}
    attention = module(
        [tensor_type([2, 4, n]), tensor_type([2, 4, 20]), tensor_type([2, 20, 6])],
        lambda b, *xs: b.emit(call("attention", *xs, steps=[], **axes)),
    )
    keys = [
        attrs_of(c)["annotations"]["rten.key"]
        for mod in (depthwise, grouped, product, matrices, attention)
        for c in calls_of(packed(mod))
    ]
    assert keys == [
        "depthwise 6->12 3x2 strides 2x1 dilations 1x1 pads 1x1x1x1 image ?x8x9",
        "conv 6->12 3x2 strides 1x1 dilations 1x2 pads 1x1x1x1 groups 3 image ?x8x9",
        "gemm ?x4x20",
        "matmul 2x?x4 by transposed 2x20x4",
        "attention 2x?x4 by 20 keys of 6 channels",
    ]


def test_products_without_tiles_have_no_key() -> None:
    few = module(
        [tensor_type([2, 4]), tensor_type([20, 4])],
        lambda b, x, y: b.emit(call("matmul", x, y, transpose_b=True)),
    )
    vector = module(
        [tensor_type([9, 4]), tensor_type([4, 1])], lambda b, x, y: b.emit(call("matmul", x, y))
    )
    for mod in (few, vector):
        assert all("annotations" not in attrs_of(c) for c in calls_of(packed(mod)))


def test_depthwise_convolution() -> None:
    mod = packed(conv_module(random(8, 1, 3, 3), [1, 8, 8, 4], groups=4))
    assert operators(mod) == ["rten.depthwise"]


def test_what_stays_as_it_is() -> None:
    first = conv_module(random(4, 3, 3, 3), [1, 3, 8, 8], layout="NCHW")
    assert operators(packed(first)) == ["rten.conv"]
    types = [tensor_type([1, 8, 8, 3]), tensor_type([4, 3, 3, 3])]
    attrs: dict[str, Any] = {
        "strides": [1, 1], "dilations": [1, 1], "groups": 1, "layout": "NHWC",
    }  # fmt: skip
    variable = module(types, lambda b, x, w: b.emit(call("conv", x, w, ints(0, 0, 0, 0), **attrs)))
    assert operators(packed(variable)) == ["rten.conv"]
    vector = module(
        [tensor_type([4, 3])], lambda b, x: b.emit(call("matmul", x, relax.const(random(3, 1))))
    )
    assert operators(packed(vector)) == ["rten.matmul"]


@pytest.mark.parametrize(
    ("a", "b", "transpose_b"),
    [((4, 3), (3, 20), False), ((2, 4, 3), (20, 3), True), ((2, 5, 4, 3), (1, 1, 3, 20), False)],
)
def test_matmul(a: tuple[int, ...], b: tuple[int, ...], transpose_b: bool) -> None:
    w, x = random(*b), random(*a)
    mod = module(
        [tensor_type(a)],
        lambda bb, v: bb.emit(call("matmul", v, relax.const(w), transpose_b=transpose_b)),
    )
    result = packed(mod)
    assert operators(result) == ["rten.gemm_packed"]
    (value,) = run(result, AVX2, [x])
    expected = x.astype(np.float64) @ (w.T if transpose_b else w)
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)


TRANSPOSED: dict[str, dict[str, Any]] = {
    "kernel-is-stride": {"kernel": (2, 2), "strides": [2, 2]},
    "doubling": {"kernel": (4, 4), "strides": [2, 2], "pads": [1, 1, 1, 1]},
    "output-padding": {
        "kernel": (3, 3), "strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1],
    },
    "stride-one": {"kernel": (3, 2), "strides": [1, 1], "pads": [1, 0, 0, 1]},
    "stride-beyond-kernel": {"kernel": (1, 2), "strides": [3, 4], "pads": [0, 1, 0, 0]},
    "dilated": {"kernel": (3, 2), "strides": [2, 1], "dilations": [2, 3]},
    "cut-deeply": {"kernel": (5, 5), "strides": [2, 2], "pads": [4, 3, 3, 4]},
}  # fmt: skip


def transposed(x: Array, w: Array, attrs: dict[str, Any]) -> Array:
    """ConvTranspose of an NHWC image in float64, tap by tap."""
    kernel, strides, dilations = attrs["kernel"], attrs["strides"], attrs["dilations"]
    top, left, bottom, right = attrs["pads"]
    n, height, width, _ = x.shape
    reach = [(kernel[d] - 1) * dilations[d] + 1 for d in (0, 1)]
    full = np.zeros(
        (
            n,
            (height - 1) * strides[0] + reach[0] + attrs["output_padding"][0],
            (width - 1) * strides[1] + reach[1] + attrs["output_padding"][1],
            w.shape[1],
        )
    )
    for i, j in np.ndindex(*kernel):
        y, z = i * dilations[0], j * dilations[1]
        full[
            :,
            y : y + (height - 1) * strides[0] + 1 : strides[0],
            z : z + (width - 1) * strides[1] + 1 : strides[1],
        ] += x.astype(np.float64) @ w[:, :, i, j]
    return full[:, top : full.shape[1] - bottom, left : full.shape[2] - right]


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolution(name: str, machine: Any) -> None:
    attrs = {
        "dilations": [1, 1], "pads": [0, 0, 0, 0], "output_padding": [0, 0], **TRANSPOSED[name],
    }  # fmt: skip
    x, w = random(2, 5, 4, 3), random(3, 7, *attrs["kernel"])
    given = {k: attrs[k] for k in ("strides", "dilations", "output_padding")}

    def build(b: relax.BlockBuilder, v: relax.Expr) -> relax.Expr:
        pads = ints(*attrs["pads"])
        return b.emit(
            call("conv_transpose", v, relax.const(w), pads, groups=1, layout="NHWC", **given)
        )

    result = pack_weights(module([tensor_type(x.shape)], build), machine, lambda _: None)
    assert operators(result) == ["rten.conv_packed", "rten.interleave_phases"]
    (value,) = run(result, machine, [x])
    np.testing.assert_allclose(value, transposed(x, w, attrs), rtol=1e-5, atol=1e-5)
