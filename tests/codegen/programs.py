"""Host programs of small modules, with kernels that were not scheduled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import tirx

from rten_aot.codegen.linearise import build_program
from rten_aot.codegen.program import Kernel, KernelCall, Program, SizeCheck, SourceFunction, Step
from rten_aot.passes.base import relax_functions
from rten_aot.passes.pipeline import lower


def program_of(
    mod: tvm.IRModule,
    checks: Mapping[str, Sequence[SizeCheck]] | None = None,
    scratch: int = 0,
) -> Program:
    """The host program of ``mod``; every kernel gets ``scratch`` work memories of 100 bytes."""
    lowered = lower(mod, fused=False)
    kernels = {
        var.name_hint: Kernel(f"k_{var.name_hint}", _with_scratch(function, scratch), scratch)
        for var, function in lowered.functions.items()
        if isinstance(function, tirx.PrimFunc)
    }
    sources = {
        var.name_hint: SourceFunction(function, (checks or {}).get(var.name_hint, ()))
        for var, function in relax_functions(lowered)
    }
    return build_program(sources, kernels)


def _with_scratch(function: tirx.PrimFunc, count: int) -> tirx.PrimFunc:
    size = tirx.const(100, "int64")
    extra = [tirx.decl_buffer((size,), "uint8", name=f"scratch{i}") for i in range(count)]
    return tirx.PrimFunc([*function.params, *extra], function.body)


def kernel_calls(steps: Sequence[Step]) -> list[KernelCall]:
    """The calls among the steps."""
    return [step for step in steps if isinstance(step, KernelCall)]
