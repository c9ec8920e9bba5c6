"""The kernels of a model on PoCL, an OpenCL for CPUs: a second opinion beside the emulator.

Their text is that of CUDA but for words: ``cuda.h`` has macros for most; what is rewritten here are
types of pointers, in which OpenCL wants address spaces. Compiler, threads and barriers are others
than the emulator's. Models have known sizes and kernels that cannot fail.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy.typing as npt
from tvm import tirx

import rten_aot
from rten_aot.codegen import build
from rten_aot.codegen.link import _cache_dir
from rten_aot.codegen.program import (
    Input,
    Kernel,
    KernelCall,
    Output,
    Planned,
    Program,
    Storage,
    Weight,
)
from rten_aot.targets.common.expr import constant_int
from rten_aot.targets.cuda.kernel import PREAMBLE

Array = npt.NDArray[Any]

HERE = Path(__file__).resolve().parent

_REWRITES = (
    (r'extern "C" __global__', "__kernel"),
    (r"(\w+) \*__restrict__", r"__global \1 *restrict"),
    (r"\((const )?(\w+4) \*\)&", r"(\1__local \2 *)&"),
    (r"\((const )?(\w+4) \*\)\(p", r"(\1__global \2 *)(p"),
    (r"long long", "long"),
    (r"\b(rten_\w+)<[\w ]+>", r"\1"),
)

# The threads of a block as loops between barriers. What PoCL does by itself is to have LLVM 14 turn
# these loops into vectors, which then compute a softmax of 5 elements wrongly.
_SETTINGS = {"POCL_WORK_GROUP_METHOD": "cbs"}


@dataclass
class Job:
    """What ``run.py`` does: launches over buffers, which it knows by their numbers."""

    text: str
    sizes: list[int] = field(default_factory=list)
    """Bytes of the buffers."""
    contents: dict[int, bytes] = field(default_factory=dict)
    """What is in them before; nothing is like NaN."""
    launches: list[tuple[str, int, int, list[int]]] = field(default_factory=list)
    """Kernels with their numbers of blocks and threads, and the buffers that they get."""
    results: list[int] = field(default_factory=list)


def opencl(text: str) -> str:
    """The text of a model's kernels as OpenCL C."""
    assert text.startswith(PREAMBLE)
    text = text.removeprefix(PREAMBLE)
    for pattern, replacement in _REWRITES:
        text = re.sub(pattern, replacement, text)
    parts = re.split(r"(?=^__kernel)", text, flags=re.MULTILINE)
    # Local memory is declared in the outermost block of a kernel.
    parts = [p.replace("{\n", "{\n  LANES;\n", 1) if "__shfl" in p else p for p in parts]
    return (HERE / "cuda.h").read_text() + "".join(parts)


def run(source: Path, inputs: Sequence[Array]) -> list[bytes]:
    """The bytes of the outputs of a model for its inputs.

    It is compiled as for any GPU; from there on OpenCL takes over.
    """
    kernels: list[Kernel] = []
    programs: list[Program] = []
    keep_kernels, keep_program = build.device_code, build.divided

    def device_code(found: Sequence[Kernel], *rest: Any) -> Any:
        kernels.extend(found)
        return keep_kernels(found, *rest)

    def divided(program: Program) -> Program:
        programs.append(keep_program(program))
        return programs[-1]

    with patch.object(build, "device_code", device_code), patch.object(build, "divided", divided):
        text = rten_aot.compile(
            source, source.with_suffix(".cu"), target="cuda -arch=sm_80", emit="cuda"
        ).read_text()
    assert "rten_aot_fail(" not in text.removeprefix(PREAMBLE)
    calls = _Calls(programs[0], inputs)
    for step in programs[0].steps:
        assert isinstance(step, KernelCall), step
        calls.add(step, next(kernel for kernel in kernels if kernel.name == step.name))
    source.with_suffix(".job").write_bytes(pickle.dumps(vars(calls.job(opencl(text)))))
    done = subprocess.run(
        [*_python(), HERE / "run.py", source.with_suffix(".job"), source.with_suffix(".out")],
        env={**os.environ, **_SETTINGS, "POCL_CACHE_DIR": str(_cache_dir() / "pocl")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results: list[bytes] = pickle.loads(source.with_suffix(".out").read_bytes())
    return results


class _Calls:
    """The calls of a program as launches over buffers."""

    def __init__(self, program: Program, inputs: Sequence[Array]) -> None:
        self._weights = dict(program.weights)
        self._inputs = inputs
        self._numbers: dict[Storage, int] = {}
        self._job = Job("")

    def add(self, call: KernelCall, kernel: Kernel) -> None:
        assert call.operands is not None
        assert kernel.launches is not None, "it runs on the CPU"
        buffers = [p for p in kernel.function.params if isinstance(p.ty, tirx.BufferType)]
        numbers = [
            self._number(storage.root() if isinstance(storage, Planned) else storage, size)
            for storage, size in zip(call.pointers, call.operands.bytes, strict=True)
        ]
        own = dict(zip(buffers, numbers, strict=True))
        for index, launch in enumerate(kernel.launches):
            name = kernel.name if len(kernel.launches) == 1 else f"{kernel.name}_{index}"
            blocks, *others = map(constant_int, launch.grid)
            assert blocks is not None
            assert others == [1, 1]
            arguments = [own[argument] for argument in launch.arguments]
            self._job.launches.append((name, blocks, launch.threads, arguments))

    def _number(self, root: Storage, size: tirx.Expr) -> int:
        """Of the storage's buffer, which is made when the storage is first met."""
        if root not in self._numbers:
            number = self._numbers[root] = len(self._job.sizes)
            bytes_ = constant_int(root.size if isinstance(root, Planned) else size)
            assert bytes_ is not None
            self._job.sizes.append(bytes_)
            match root:
                case Input(index):
                    self._job.contents[number] = self._inputs[index].tobytes()
                case Weight(offset):
                    self._job.contents[number] = self._weights[offset].tobytes()
        return self._numbers[root]

    def job(self, text: str) -> Job:
        """All of it, with the outputs in order as results."""
        outputs = {s.index: n for s, n in self._numbers.items() if isinstance(s, Output)}
        self._job.results = [outputs[index] for index in sorted(outputs)]
        self._job.text = text
        return self._job


def _python() -> list[str]:
    """An interpreter on a CPU that PoCL's compiler knows: of newer ones it knows no name."""
    emulator = shutil.which("qemu-x86_64-static")
    return [*([emulator, "-cpu", "Haswell"] if emulator else []), sys.executable]
