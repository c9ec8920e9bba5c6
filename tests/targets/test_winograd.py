"""Winograd convolutions: numbers, half tiles, borders, symbolic sizes, blocks of tiles."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tvm import relax

import rten_aot.dialect.arithmetic
import rten_aot.dialect.elementwise
import rten_aot.dialect.winograd  # noqa: F401
from rten_aot.dialect.registry import call
from rten_aot.passes.pack_weights import pack_winograd
from rten_aot.targets.base import Machine
from rten_aot.targets.common.packing import columns, pays_winograd
from tests.targets.anchors import (
    AVX2,
    AVX512,
    NEON,
    PRODUCT_MACHINES,
    Kernel,
    compiled,
    fused,
    ints,
    sym,
    tensor_type,
)
from tests.targets.test_conv2d import Case

ALL_SIDES = (1, 1, 1, 1)
CASES = {
    "even": Case((1, 14, 14, 32), 64, pads=ALL_SIDES),
    "odd": Case((1, 13, 7, 16), 20, pads=ALL_SIDES),
    "no-padding": Case((2, 9, 10, 17), 33),
    "one-pixel": Case((1, 1, 1, 16), 16, pads=ALL_SIDES),
    "one-tile-high": Case((1, 2, 31, 24), 48, pads=ALL_SIDES),
    "uneven-padding": Case((3, 6, 5, 19), 16, pads=(0, 2, 1, 0)),
    "padding-beyond-kernel": Case((1, 4, 3, 16), 18, pads=(5, 3, 4, 6)),
    "several-blocks": Case((1, 60, 44, 48), 40, pads=ALL_SIDES),
    "empty": Case((1, 2, 9, 16), 16),
    "few-channels": Case((1, 12, 12, 3), 5, pads=ALL_SIDES),
}


def kernel_of(case: Case, machine: Machine, *, symbolic: bool = False) -> Kernel:
    """``relu(conv(x, w) + bias + residual)``, compiled."""
    packed = pack_winograd(np.zeros(case.weight_shape(), "float32"), columns(machine, case.out))
    image: list = list(case.image)
    shape = np.zeros(case.image, "float32")
    result: list = list(case.reference(shape, np.zeros(case.weight_shape(), "float32")).shape)
    if symbolic:
        image[:3] = [sym("n"), sym("h"), sym("w")]
        grown = [p - 2 for p in (case.pads[0] + case.pads[2], case.pads[1] + case.pads[3])]
        assert grown == [0, 0], "the residual has the image's size"
        result[:3] = image[:3]
    shapes = [image, packed.shape, [1, 1, 1, case.out], result]

    def build(b: relax.BlockBuilder, x: relax.Expr, w: relax.Expr, *more: relax.Expr) -> relax.Expr:
        y = b.emit(call("conv_winograd", x, w, ints(*case.pads), out_channels=case.out))
        for operand in more:
            y = b.emit(call("add", y, operand))
        return b.emit(call("relu", y))

    return compiled(fused([tensor_type(s) for s in shapes], build), machine)


def check(case: Case, kernel: Kernel, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(case.image, dtype="float32")
    w = rng.standard_normal(case.weight_shape(), dtype="float32")
    bias = rng.standard_normal((1, 1, 1, case.out), dtype="float32")
    plain = case.reference(x, w)
    residual = rng.standard_normal(plain.shape, dtype="float32")
    packed = pack_winograd(w, columns(kernel.machine, case.out))
    result = kernel(x, packed, bias, residual)
    np.testing.assert_allclose(
        result,
        np.maximum(plain + bias + residual, 0),
        rtol=1e-5,
        atol=1e-5 * abs(plain).max(initial=1),
    )


@pytest.mark.parametrize("machine", PRODUCT_MACHINES.values(), ids=PRODUCT_MACHINES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_static(case: Case, machine: Machine) -> None:
    check(case, kernel_of(case, machine))


@pytest.mark.parametrize("machine", PRODUCT_MACHINES.values(), ids=PRODUCT_MACHINES)
def test_symbolic(machine: Machine) -> None:
    case = CASES["even"]
    kernel = kernel_of(case, machine, symbolic=True)
    for n, h, w in [(1, 1, 1), (1, 7, 5), (2, 13, 18), (1, 2, 50), (3, 40, 31)]:
        check(dataclasses.replace(case, image=(n, h, w, case.image[3])), kernel, seed=h)


def test_says_what_it_does() -> None:
    assert kernel_of(CASES["even"], AVX2).notes == [
        "algorithm winograd, width 16, rows 6 (as many as fit the registers), "
        "run 1 (weights fit the level-2 cache), block 85 (they fit the level-2 cache), "
        "ahead no (weights fit the level-2 cache)"
    ]


def test_compiles_for_neon() -> None:
    assert kernel_of(CASES["odd"], NEON, symbolic=False).assembly_uses("fmla")


@pytest.mark.parametrize(
    ("channels", "tiles", "pays"),
    [
        (8, 1000, False),  # too few channels
        (32, 9, True),  # few weights
        (512, 16, False),  # many weights for few pixels
        (512, 49, True),
        (512, None, True),
    ],
)
def test_pays(channels: int, tiles: int | None, pays: bool) -> None:
    assert pays_winograd(AVX512, channels, channels, tiles)[0] is pays
