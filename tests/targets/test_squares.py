"""Transpositions: squares in registers, ends that no square fits, symbolic sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import rten_aot.dialect.movement  # noqa: F401
from rten_aot.dialect.registry import call
from rten_aot.targets.base import Machine
from tests.targets.anchors import AVX2, MACHINES, NEON, Kernel, compiled, fused, sym, tensor_type

CASES = {
    "whole": ((32, 48), (1, 0)),
    "ends": ((3, 37, 21), (0, 2, 1)),
    "image": ((2, 5, 7, 33), (0, 3, 1, 2)),
    "heads": ((19, 3, 32), (1, 0, 2)),
    "narrow": ((1000, 13), (1, 0)),
    "too-narrow": ((1000, 3), (1, 0)),
    "both-short": ((5, 6), (1, 0)),
    "turned": ((17, 18, 19), (2, 1, 0)),
}


def kernel_of(shape: Sequence, axes: Sequence[int], machine: Machine) -> Kernel:
    return compiled(
        fused([tensor_type(shape)], lambda b, x: b.emit(call("transpose", x, axes=list(axes)))),
        machine,
    )


def check(kernel: Kernel, shape: Sequence[int], axes: Sequence[int]) -> None:
    x = np.random.default_rng(0).standard_normal(shape, dtype="float32")
    np.testing.assert_array_equal(kernel(x), x.transpose(axes))


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize(("shape", "axes"), CASES.values(), ids=CASES)
def test_static(shape: tuple[int, ...], axes: tuple[int, ...], machine: Machine) -> None:
    check(kernel_of(shape, axes, machine), shape, axes)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_symbolic(machine: Machine) -> None:
    kernel = kernel_of([sym("n"), sym("m")], [1, 0], machine)
    for shape in [(16, 16), (31, 40), (3, 50), (50, 3), (1, 1), (17, 15), (0, 4)]:
        check(kernel, shape, [1, 0])


def test_elements_are_shuffled_not_gathered() -> None:
    kernel = kernel_of((64, 64), (1, 0), AVX2)
    assert kernel.assembly_uses("vunpcklps") or kernel.assembly_uses("vshufps")
    assert not kernel.assembly_uses("vinsertps")


def test_compiles_for_neon() -> None:
    kernel = kernel_of((64, 64), (1, 0), NEON)
    assert kernel.assembly_uses("zip1") or kernel.assembly_uses("trn1")
