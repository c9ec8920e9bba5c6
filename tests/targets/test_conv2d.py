"""Packed convolutions: numbers, edges, symbolic sizes, for vectors of several lengths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from tvm import relax

import rten_aot.dialect.arithmetic
import rten_aot.dialect.conv
import rten_aot.dialect.elementwise  # noqa: F401
from rten_aot.dialect.registry import call
from rten_aot.passes.pack_weights import pack_conv
from rten_aot.targets.base import Machine
from rten_aot.targets.common.packing import columns
from tests.targets.anchors import (
    AVX2,
    AVX512,
    NEON,
    PRODUCT_MACHINES,
    Array,
    Kernel,
    compiled,
    fused,
    ints,
    sym,
    tensor_type,
)


@dataclass(frozen=True)
class Case:
    """A convolution; ``image`` is NHWC, ``kernel`` height and width."""

    image: tuple[int, int, int, int]
    out: int
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    groups: int = 1

    def weight_shape(self) -> tuple[int, int, int, int]:
        return (self.out, self.image[3] // self.groups, *self.kernel)

    def reference(self, x: Array, w: Array) -> Array:
        """The convolution in float64."""
        top, left, bottom, right = self.pads
        padded = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
        sizes = [
            (padded.shape[1 + d] - (self.kernel[d] - 1) * self.dilations[d] - 1) // self.strides[d]
            + 1
            for d in (0, 1)
        ]
        result = np.zeros((x.shape[0], *sizes, self.out))
        own_out, own_in = self.out // self.groups, x.shape[3] // self.groups
        for g in range(self.groups):
            kernel = w[g * own_out : (g + 1) * own_out].astype(np.float64)
            for i, j in np.ndindex(*self.kernel):
                y, z = i * self.dilations[0], j * self.dilations[1]
                part = padded[
                    :,
                    y : y + self.strides[0] * (sizes[0] - 1) + 1 : self.strides[0],
                    z : z + self.strides[1] * (sizes[1] - 1) + 1 : self.strides[1],
                    g * own_in : (g + 1) * own_in,
                ]
                result[..., g * own_out : (g + 1) * own_out] += part @ kernel[:, :, i, j].T
        return result


CASES = {
    "first-layer": Case((1, 21, 23, 3), 16, (7, 7), (2, 2), pads=(3, 3, 3, 3)),
    "3x3": Case((1, 14, 14, 32), 64, pads=(1, 1, 1, 1)),
    "few-pixels": Case((1, 2, 2, 17), 33, pads=(1, 1, 1, 1)),
    "1x1": Case((2, 5, 7, 9), 48, (1, 1)),
    "1x1-one-pixel": Case((1, 1, 1, 33), 17, (1, 1)),
    "1x1-strided": Case((1, 7, 8, 16), 24, (1, 1), (2, 2)),
    "stride-beyond-kernel": Case((2, 10, 11, 7), 9, (2, 1), (3, 2)),
    "dilated": Case((1, 13, 12, 8), 7, (3, 2), dilations=(2, 3), pads=(2, 1, 0, 3)),
    "padding-beyond-image": Case((1, 2, 3, 5), 3, (5, 5), pads=(4, 4, 4, 4)),
    "uneven-padding": Case((1, 5, 6, 4), 40, (3, 3), (2, 2), pads=(0, 1, 1, 0)),
    "1-d": Case((2, 1, 19, 6), 12, (1, 5), pads=(0, 2, 0, 2)),
    "grouped": Case((2, 6, 7, 12), 27, (3, 3), pads=(1, 1, 1, 1), groups=3),
    "grouped-small": Case((1, 6, 7, 8), 4, (3, 3), (1, 2), groups=4),
    "one-channel": Case((1, 9, 9, 1), 1, (3, 3), pads=(1, 1, 1, 1)),
}


def kernel_of(case: Case, machine: Machine, *, symbolic: bool, residual: bool) -> Kernel:
    """``relu(conv(x, w) + bias + residual)``, compiled."""
    width = columns(machine, case.out // case.groups)
    packed = pack_conv(np.zeros(case.weight_shape(), "float32"), case.groups, width)
    image: list = list(case.image)
    if symbolic:
        image[:3] = [sym("n"), sym("h"), sym("w")]
    types = [tensor_type(image), tensor_type(packed.shape), tensor_type([1, 1, 1, case.out])]
    if residual:
        types.append(tensor_type(_result_shape(case)))

    def build(b: relax.BlockBuilder, x: relax.Expr, w: relax.Expr, *more: relax.Expr) -> relax.Expr:
        y = b.emit(
            call(
                "conv_packed",
                x,
                w,
                ints(*case.pads),
                out_channels=case.out,
                strides=list(case.strides),
                dilations=list(case.dilations),
            )
        )
        for operand in more:
            y = b.emit(call("add", y, operand))
        return b.emit(call("relu", y))

    return compiled(fused(types, build), machine)


def _result_shape(case: Case) -> list[int]:
    shape = np.zeros(case.image, "float32")
    return list(case.reference(shape, np.zeros(case.weight_shape(), "float32")).shape)


def check(case: Case, kernel: Kernel, *, residual: bool, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(case.image, dtype="float32")
    w = rng.standard_normal(case.weight_shape(), dtype="float32")
    bias = rng.standard_normal((1, 1, 1, case.out), dtype="float32")
    expected = case.reference(x, w) + bias
    packed = pack_conv(w, case.groups, columns(kernel.machine, case.out // case.groups))
    operands = [x, packed, bias]
    if residual:
        operands.append(rng.standard_normal(expected.shape, dtype="float32"))
        expected = expected + operands[-1]
    result = kernel(*operands)
    np.testing.assert_allclose(result, np.maximum(expected, 0), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("machine", PRODUCT_MACHINES.values(), ids=PRODUCT_MACHINES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_static(case: Case, machine: Machine) -> None:
    check(case, kernel_of(case, machine, symbolic=False, residual=True), residual=True)


@pytest.mark.parametrize("machine", PRODUCT_MACHINES.values(), ids=PRODUCT_MACHINES)
@pytest.mark.parametrize("name", ["3x3", "1x1", "stride-beyond-kernel", "grouped"])
def test_symbolic(name: str, machine: Machine) -> None:
    case = CASES[name]
    kernel = kernel_of(case, machine, symbolic=True, residual=False)
    for n, h, w in [(1, 3, 3), (1, 7, 5), (2, 13, 17), (1, 3, 50), (3, 10, 1 + case.kernel[1])]:
        resized = Case(
            (n, h, w, case.image[3]),
            case.out,
            case.kernel,
            case.strides,
            case.dilations,
            case.pads,
            case.groups,
        )
        check(resized, kernel, residual=False, seed=h)


@pytest.mark.parametrize("machine", [AVX2, AVX512], ids=lambda m: m.name)
def test_a_factor_for_each_image_and_channel_is_part_of_the_kernel(machine: Machine) -> None:
    """Operands that lack some axes of the result (squeeze and excitation)."""
    rng = np.random.default_rng(1)
    case = Case((3, 5, 5, 8), 20, pads=(1, 1, 1, 1))
    width = columns(machine, 20)
    w = rng.standard_normal(case.weight_shape(), dtype="float32")
    packed = pack_conv(w, 1, width)

    def build(b: relax.BlockBuilder, x: relax.Expr, wt: relax.Expr, f: relax.Expr) -> relax.Expr:
        one = [1, 1]
        y = call(
            "conv_packed", x, wt, ints(1, 1, 1, 1), out_channels=20, strides=one, dilations=one
        )
        return b.emit(call("multiply", b.emit(y), f))

    types = [tensor_type(case.image), tensor_type(packed.shape), tensor_type([3, 1, 1, 20])]
    x = rng.standard_normal(case.image, dtype="float32")
    factor = rng.standard_normal((3, 1, 1, 20), dtype="float32")
    result = compiled(fused(types, build), machine)(x, packed, factor)
    np.testing.assert_allclose(result, case.reference(x, w) * factor, rtol=1e-5, atol=1e-4)


def test_without_padding_nothing_is_copied() -> None:
    assert kernel_of(CASES["1x1-strided"], AVX2, symbolic=False, residual=False).scratch == 0
    assert kernel_of(CASES["3x3"], AVX2, symbolic=False, residual=False).scratch == 1


def test_compiles_for_neon() -> None:
    kernel = kernel_of(CASES["3x3"], NEON, symbolic=True, residual=False)
    assert kernel.assembly_uses("fmla")
