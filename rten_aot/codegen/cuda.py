"""Kernels for a GPU: their text for one model, their machine code, and what the host calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tvm import tirx
from tvm.ir import PointerType, PrimType, Var

from rten_aot.codegen import elf, nvrtc
from rten_aot.codegen.nvrtc import Image
from rten_aot.codegen.program import Kernel, kernel_sizes
from rten_aot.targets.cuda.kernel import PREAMBLE, Launch
from rten_aot.targets.cuda.target import Precision
from rten_aot.targets.cuda.tensor_cores import PREAMBLES


@dataclass(frozen=True)
class DeviceCode:
    """The kernels of a model as CUDA text."""

    text: str
    kernels: tuple[str, ...]
    """Their names, by the numbers that the host launches them by."""
    fails: bool
    """Whether any of them may record a failure."""


def device_code(
    kernels: Sequence[Kernel], precision: Precision
) -> tuple[DeviceCode, dict[str, tirx.PrimFunc]]:
    """The text of all kernels that a GPU computes, and the functions that launch them, by name."""
    parts, names = [PREAMBLE, PREAMBLES.get(precision, "")], list[str]()
    stubs: dict[str, tirx.PrimFunc] = {}
    fails = False
    for kernel in kernels:
        if kernel.launches is None:
            continue
        stubs[kernel.name] = _stub(kernel.function, kernel.launches, len(names))
        for index, launch in enumerate(kernel.launches):
            name = kernel.name if len(kernel.launches) == 1 else f"{kernel.name}_{index}"
            for full, type_ in _versions(name, launch):
                names.append(full)
                parts.append(launch.named(full, type_))
            fails = fails or launch.fails
    return DeviceCode("\n".join(parts), tuple(names), fails), stubs


def _versions(name: str, launch: Launch) -> list[tuple[str, str]]:
    """The names under which a kernel is defined, with the types of their indices."""
    return [(name, "int")] + ([(f"{name}_wide", "long long")] if launch.fit is not None else [])


def _stub(function: tirx.PrimFunc, launches: Sequence[Launch], first: int) -> tirx.PrimFunc:
    """The kernel as a plain C function, like ``raw_kernel``, that has the GPU do the work."""
    buffers = [p for p in function.params if isinstance(p.ty, tirx.BufferType)]
    pointers = {
        b: Var(f"{b.name}_p", PointerType(PrimType(str(b.ty.dtype)), "global")) for b in buffers
    }
    stmts: list[tirx.Stmt] = []
    number = first
    for launch in launches:
        for place, argument in enumerate(launch.arguments):
            at = tirx.const(place, "int32")
            if argument in pointers:
                call = tirx.call_extern("int32", "rten_cuda_pointer", at, pointers[argument])
            else:
                call = tirx.call_extern("int32", "rten_cuda_size", at, argument)
            stmts.append(tirx.Evaluate(call))
        started = _launch(launch, number)
        number += 1
        if launch.fit is not None:
            started = tirx.IfThenElse(launch.fit, started, _launch(launch, number))
            number += 1
        stmts.append(started)
    # The numbers at the end do nothing: a sequence has two statements at least.
    body = tirx.SeqStmt([*stmts, *[tirx.Evaluate(tirx.const(0, "int32"))] * 2])
    return tirx.PrimFunc([*pointers.values(), *kernel_sizes(function)], body)


def _launch(launch: Launch, number: int) -> tirx.Stmt:
    threads = [tirx.const(n, "int64") for n in (launch.threads, 1, 1, 0)]
    operands = (tirx.const(number, "int32"), *launch.grid, *threads)
    return tirx.Evaluate(tirx.call_extern("int32", "rten_cuda_launch", *operands))


def images(code: DeviceCode, archs: Sequence[str]) -> list[Image]:
    """Machine code for each architecture, and PTX of the last one for those to come."""
    wanted = [(int(arch.removeprefix("sm_")), False) for arch in archs]
    wanted.append((wanted[-1][0], True))
    with ThreadPoolExecutor(max_workers=len(wanted)) as pool:
        return list(pool.map(lambda w: nvrtc.compile_image(code.text, w[0], ptx=w[1]), wanted))


def write_images(made: Sequence[Image], folder: Path, machine: elf.Machine) -> list[Path]:
    """Objects that hold the images under the names that the tables use."""
    paths = []
    for index, image in enumerate(made):
        paths.append(folder / f"image{index}.o")
        data = image.data + b"\0" * (-len(image.data) % 8)
        chunks = [(0, np.frombuffer(data, np.uint8))]
        elf.write_weights_object(
            paths[-1], chunks, len(data), machine=machine, symbol=f"rten_cuda_image{index}"
        )
    return paths


def tables(code: DeviceCode, made: Sequence[Image], weight_bytes: int) -> str:
    """The C text of ``rten_cuda_desc``."""
    externs = "".join(
        f"extern const uint8_t rten_cuda_image{i}[] RTEN_HIDDEN;\n" for i in range(len(made))
    )
    rows = "".join(
        f"    {{{image.arch}, {int(image.is_ptx)}, rten_cuda_image{i}, {len(image.data)}}},\n"
        for i, image in enumerate(made)
    )
    names = "".join(f'    "{name}",\n' for name in code.kernels)
    kernels = f"static const char *const cuda_kernels[] = {{\n{names}}};\n" if names else ""
    fields: Mapping[str, object] = {
        "images": "cuda_images",
        "num_images": len(made),
        "kernels": "cuda_kernels" if names else "NULL",
        "num_kernels": len(code.kernels),
        "weight_bytes": weight_bytes,
        "can_fail": int(code.fails),
    }
    body = "".join(f"    .{name} = {value},\n" for name, value in fields.items())
    return f"""{externs}static const rten_cuda_image cuda_images[] = {{
{rows}}};
{kernels}RTEN_HIDDEN const rten_cuda_tables rten_cuda_desc = {{
{body}}};
"""
