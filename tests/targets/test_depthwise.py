"""Depthwise convolutions: edges without copies, tails of channels and pixels, symbolic sizes."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

import rten_aot.dialect.arithmetic
import rten_aot.dialect.conv
import rten_aot.dialect.elementwise  # noqa: F401
from rten_aot.dialect.registry import call
from rten_aot.targets.base import Machine
from tests.targets.anchors import (
    MACHINES,
    NEON,
    Kernel,
    compiled,
    fused,
    ints,
    sym,
    tensor_type,
)
from tests.targets.test_conv2d import Case

CASES = {
    "3x3": Case((1, 14, 14, 64), 64, pads=(1, 1, 1, 1)),
    "channel-tail": Case((2, 9, 11, 23), 23, pads=(1, 1, 1, 1)),
    "few-channels": Case((1, 6, 13, 3), 3, pads=(1, 1, 1, 1)),
    "one-channel": Case((1, 6, 13, 1), 1, pads=(1, 1, 1, 1)),
    "5x5-strided": Case((1, 15, 17, 40), 40, (5, 5), (2, 2), pads=(2, 2, 2, 2)),
    "multiplier": Case((2, 7, 6, 5), 15, (3, 2), (1, 2), pads=(1, 0, 1, 1)),
    "dilated": Case((1, 12, 13, 8), 8, (3, 3), dilations=(2, 3), pads=(2, 3, 2, 3)),
    "padding-beyond-image": Case((1, 3, 2, 9), 9, (3, 3), pads=(3, 4, 3, 4)),
    "uneven-padding": Case((1, 8, 9, 16), 16, (3, 3), (2, 2), pads=(0, 1, 1, 0)),
    "stride-beyond-kernel": Case((1, 13, 14, 17), 17, (1, 2), (2, 3)),
    "1-d": Case((2, 1, 21, 33), 33, (1, 9), pads=(0, 4, 0, 4)),
}

machines = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)


def kernel_of(case: Case, machine: Machine, *, symbolic: bool) -> Kernel:
    """``relu(depthwise(x, w) + bias)``, compiled."""
    image: list = list(case.image)
    if symbolic:
        image[:3] = [sym("n"), sym("h"), sym("w")]

    def build(b: relax.BlockBuilder, x: relax.Expr, w: relax.Expr, c: relax.Expr) -> relax.Expr:
        geometry = {"strides": list(case.strides), "dilations": list(case.dilations)}
        y = b.emit(call("depthwise", x, w, ints(*case.pads), **geometry))
        return b.emit(call("relu", b.emit(call("add", y, c))))

    types = [
        tensor_type(image),
        tensor_type([*case.kernel, case.out]),
        tensor_type([1, 1, 1, case.out]),
    ]
    return compiled(fused(types, build), machine)


def check(case: Case, kernel: Kernel) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal(case.image, dtype="float32")
    w = rng.standard_normal((case.out, 1, *case.kernel), dtype="float32")
    bias = rng.standard_normal((1, 1, 1, case.out), dtype="float32")
    grouped = Case(
        case.image, case.out, case.kernel, case.strides, case.dilations, case.pads, case.image[3]
    )
    expected = np.maximum(grouped.reference(x, w) + bias, 0)
    packed = np.ascontiguousarray(w[:, 0].transpose(1, 2, 0))
    np.testing.assert_allclose(kernel(x, packed, bias), expected, rtol=1e-5, atol=1e-5)


@machines
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_static(case: Case, machine: Machine) -> None:
    kernel = kernel_of(case, machine, symbolic=False)
    assert kernel.scratch == 0
    check(case, kernel)


@machines
@pytest.mark.parametrize("name", ["channel-tail", "5x5-strided", "dilated"])
def test_symbolic(name: str, machine: Machine) -> None:
    case = CASES[name]
    kernel = kernel_of(case, machine, symbolic=True)
    for n, h, w in [(1, 1, 1), (1, 7, 5), (2, 13, 17), (1, 3, 50), (3, 10, 4)]:
        image = (n, h, w, case.image[3])
        check(Case(image, case.out, case.kernel, case.strides, case.dilations, case.pads), kernel)


def test_compiles_for_neon() -> None:
    assert kernel_of(CASES["3x3"], NEON, symbolic=True).assembly_uses("fmla")
