"""The innermost loops of products, as the code generator writes them.

Nothing is spilled in them, and by LLVM's model of the processor (llvm-mca, of Debian's package
llvm) the multiply-add units are busy nearly all of the time.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import rten_aot
from rten_aot.options import Weights
from tests.support.cases import Case, convert

LEAST_UTILISATION = 0.85
MACHINES = {
    "x86-64-v3": ("x86-64-v3", ["-mtriple=x86_64", "-mcpu=znver3"]),
    "x86-64-v4": ("x86-64-v4", ["-mtriple=x86_64", "-mcpu=icelake-server"]),
    "cortex-a72": (
        "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=cortex-a72",
        ["-mtriple=aarch64", "-mcpu=cortex-a72"],
    ),
    "neoverse-n1": (
        "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1",
        ["-mtriple=aarch64", "-mcpu=neoverse-n1"],
    ),
    "aarch64": ("aarch64", ["-mtriple=aarch64", "-mcpu=cortex-a72"]),
}
"""Our targets, and llvm-mca's words for a processor of the kind."""
IN_ORDER = {
    name: (
        f"llvm -mtriple=aarch64-unknown-linux-gnu -mcpu={name}",
        ["-mtriple=aarch64", f"-mcpu={name}"],
    )
    for name in ("cortex-a53", "cortex-a55")
}
"""The same for processors that start one instruction after the other."""
EVERY = MACHINES | IN_ORDER
LEAST = dict.fromkeys(MACHINES, LEAST_UTILISATION) | dict.fromkeys(IN_ORDER, 0.7)
"""Of the cycles that the multiply-adds alone take."""
FMA = re.compile(r"\b(vfmadd\w+ps|fmla)\b")
STACK = re.compile(r"%rsp|\[sp\b")
BRANCH = re.compile(r"^(?:j\w+|b\.\w+|cbn?z\s+\w+,|tbn?z\s.*,)\s*(\.L\w+)")


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, "float32")


CASES = {
    "gemm": Case("gemm", "MatMul", [zeros(384, 384), zeros(384, 384)], [], constant=(1,)),
    "conv 1x1": Case(
        "conv", "Conv", [zeros(1, 96, 28, 28), zeros(96, 96, 1, 1)], [], constant=(1,)
    ),
    "conv 3x3": Case(
        "conv",
        "Conv",
        [zeros(1, 64, 28, 28), zeros(64, 64, 3, 3)],
        [],
        {"strides": [2, 2], "pads": [1, 1, 1, 1]},
        constant=(1,),
    ),
    "winograd": Case(
        "conv",
        "Conv",
        [zeros(1, 64, 28, 28), zeros(64, 64, 3, 3)],
        [],
        {"pads": [1] * 4},
        constant=(1,),
    ),
}


@functools.cache
def inner_loop(case: str, target: str, weights: Weights = "fp32") -> tuple[str, ...]:
    """The instructions of the loop with the most multiply-adds, the branch left out."""
    with tempfile.TemporaryDirectory() as name:
        model, assembly = Path(name, "model.rten"), Path(name, "model.s")
        convert([CASES[case]], "static", model)
        rten_aot.compile(model, assembly, target=target, emit="asm", weights=weights)
        text = assembly.read_text()
    comment = "#" if target.startswith("x86") else "//"  # on Arm, # begins a number
    lines = [line.split(comment)[0].strip() for line in text.splitlines()]
    loops: list[Sequence[str]] = []
    begins: dict[str, int] = {}
    for number, line in enumerate(lines):
        if line.endswith(":"):
            begins[line[:-1]] = number
        elif (branch := BRANCH.match(line)) and branch[1] in begins:
            body = lines[begins[branch[1]] + 1 : number]
            if not any(other.endswith(":") for other in body):
                loops.append([other for other in body if other and not other.startswith(".")])
    return tuple(max(loops, key=lambda loop: sum(bool(FMA.search(i)) for i in loop)))


@pytest.mark.parametrize("machine", EVERY)
@pytest.mark.parametrize("case", CASES)
def test_nothing_is_spilled(case: str, machine: str) -> None:
    loop = inner_loop(case, EVERY[machine][0])
    assert sum(bool(FMA.search(i)) for i in loop) >= 8
    assert not [i for i in loop if STACK.search(i)]


needs_mca = pytest.mark.skipif(
    shutil.which("llvm-mca") is None, reason="llvm-mca is missing (package llvm)"
)


@needs_mca
@pytest.mark.parametrize("machine", EVERY)
@pytest.mark.parametrize("case", CASES)
def test_multiply_adds_keep_their_units_busy(case: str, machine: str) -> None:
    target, words = EVERY[machine]
    loop = inner_loop(case, target)
    assert utilisation(loop, words) >= LEAST[machine], "\n".join(loop)


ITERATIONS = 200


def utilisation(loop: Sequence[str], words: Sequence[str]) -> float:
    """The part of the loop's cycles in which its multiply-adds keep their units busy."""
    bound = cycles([i for i in loop if FMA.search(i)], words, "Block RThroughput")
    return bound * ITERATIONS / cycles(loop, words, "Total Cycles")


def cycles(instructions: Sequence[str], words: Sequence[str], what: str) -> float:
    """A number from llvm-mca's report."""
    command = ["llvm-mca", *words, f"-iterations={ITERATIONS}", "-"]
    source = "\n".join(instructions) + "\n"
    report = subprocess.run(command, input=source, capture_output=True, text=True, check=True)
    found = re.search(rf"{what}:\s+([\d.]+)", report.stdout)
    assert found is not None, report.stdout
    return float(found[1])
