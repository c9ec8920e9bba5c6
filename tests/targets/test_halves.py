"""Numbers stored as float16: their way to float32, and products that read them."""

from __future__ import annotations

import dataclasses
import re
import shutil

import numpy as np
import pytest
from tvm import relax

import rten_aot.dialect.convert  # noqa: F401
from rten_aot.dialect.registry import call
from rten_aot.targets import get_machine
from rten_aot.targets.base import Machine
from tests.targets import test_inner_loops as loops
from tests.targets.anchors import AVX2, NEON, Kernel, compiled, fused, sym

CONVERTING = dataclasses.replace(
    AVX2, name="x86-64-v3 with F16C", features=("avx2", "f16c", "fma"), halves=True
)
BITS = np.arange(1 << 16, dtype=np.uint16)
FINITE = BITS[np.isfinite(BITS.view(np.float16))].view(np.float16)


def cast(machine: Machine) -> Kernel:
    """A kernel that computes with numbers stored as float16."""
    types = [relax.TensorType([sym("n")], "float16")]
    return compiled(fused(types, lambda b, x: b.emit(call("cast", x, dtype="float32"))), machine)


@pytest.mark.parametrize("machine", [AVX2, CONVERTING], ids=lambda machine: machine.name)
def test_every_finite_number_keeps_its_value(machine: Machine) -> None:
    got = cast(machine)(FINITE)
    np.testing.assert_array_equal(got.view(np.uint32), FINITE.astype("float32").view(np.uint32))


@pytest.mark.parametrize(
    ("machine", "instruction"),
    [
        (AVX2, "vpmovsxwd"),
        (CONVERTING, "vcvtph2ps"),
        (dataclasses.replace(NEON, halves=True), "fcvtl"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_conversions_are_vector_instructions(machine: Machine, instruction: str) -> None:
    assert cast(machine).assembly_uses(instruction)


@pytest.mark.parametrize(
    ("name", "halves"),
    [
        ("x86-64-v2", False),
        ("x86-64-v3", True),
        ("x86-64-v4", True),
        ("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64-v3 -mattr=-f16c", False),
        ("aarch64", True),
        ("armv7", True),
        ("llvm -mtriple=armv7-unknown-linux-gnueabihf -mcpu=cortex-a8", False),
        ("riscv64v", False),
        ("wasm32", False),
    ],
)
def test_machines_that_convert(name: str, halves: bool) -> None:
    assert get_machine(name).halves is halves


CONVERSION = re.compile(r"\b(vcvtph2ps|fcvtl)\b")


TARGETS = {
    **{name: target for name, (target, *_) in loops.MACHINES.items()},
    "cortex-a53": "cortex-a53",
}


@pytest.mark.parametrize("machine", TARGETS)
@pytest.mark.parametrize("case", loops.CASES)
def test_a_weight_is_converted_once_for_all_rows(case: str, machine: str) -> None:
    loop = loops.inner_loop(case, TARGETS[machine], "fp16")
    conversions = sum(bool(CONVERSION.search(i)) for i in loop)
    assert conversions > 0
    assert sum(bool(loops.FMA.search(i)) for i in loop) >= 4 * conversions
    assert not [i for i in loop if loops.STACK.search(i)]


@pytest.mark.skipif(shutil.which("llvm-mca") is None, reason="llvm-mca is missing (package llvm)")
@pytest.mark.parametrize("machine", loops.MACHINES)
@pytest.mark.parametrize("case", loops.CASES)
def test_multiply_adds_keep_their_units_busy(case: str, machine: str) -> None:
    """Or converting, which on Arm takes one of the same units."""
    target, words = loops.MACHINES[machine]
    loop = loops.inner_loop(case, target, "fp16")
    work = [i for i in loop if loops.FMA.search(i) or CONVERSION.search(i)]
    bound = loops.cycles(work, words, "Block RThroughput")
    taken = loops.cycles(loop, words, "Total Cycles") / loops.ITERATIONS
    text = "\n".join(loop)
    assert bound / taken >= loops.LEAST_UTILISATION, f"{bound} of {taken} cycles:\n{text}"
