"""Compiles one fused kernel for a machine and runs it, with guards around its output."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.sym import Analyzer

from rten_aot.passes.fuse import fuse
from rten_aot.passes.legalize import legalize
from rten_aot.targets.base import Machine
from rten_aot.targets.common.schedule import schedule

Array = npt.NDArray[np.float32]

AVX2 = Machine(
    name="x86-64-v3",
    triple="x86_64-unknown-linux-gnu",
    cpu="x86-64-v3",
    features=("avx2", "fma"),
    vector_bits=256,
    vector_registers=16,
    l2_bytes=512 * 1024,
    fma=True,
)
AVX512 = Machine(
    name="x86-64-v4",
    triple="x86_64-unknown-linux-gnu",
    cpu="x86-64-v4",
    attrs=("-prefer-256-bit",),
    features=("avx512f",),
    vector_bits=512,
    vector_registers=32,
    l2_bytes=1024 * 1024,
    fma=True,
)
NEON = Machine(
    name="cortex-a72",
    triple="aarch64-unknown-linux-gnu",
    cpu="cortex-a72",
    features=("neon",),
    vector_bits=128,
    vector_registers=32,
    fma=True,
)
IN_ORDER = dataclasses.replace(
    AVX2, name="in-order", vector_bits=128, vector_registers=32, in_order=True
)
"""Shaped like Cortex-A53, to run here."""
MACHINES = {m.name: m for m in (AVX2, AVX512)}
PRODUCT_MACHINES = MACHINES | {IN_ORDER.name: IN_ORDER}
"""For what is made of register tiles of products."""

_GUARD = 64


def sym(name: str) -> tirx.Var:
    """A symbolic size."""
    return tirx.Var(name, "int64")


@dataclass
class Kernel:
    """A compiled kernel."""

    machine: Machine
    function: tirx.PrimFunc
    scratch: int
    notes: list[str] = field(default_factory=list)
    _entry: Any = None

    def __post_init__(self) -> None:
        named = self.function.with_attr("global_symbol", "main")
        # This pass takes seconds and does nothing for kernels without allocations.
        with tvm.transform.PassContext(disabled_pass=["s_tir.CompactBufferAllocation"]):
            self._library = tvm.compile(named, target=self.machine.tvm_target())
        if self.machine.arch == "x86_64":
            self._entry = self._library["main"]

    def assembly_uses(self, instruction: str) -> bool:
        """Whether the machine code has the instruction."""
        return instruction in self._library.mod.inspect_source("asm")

    def bind(self, *inputs: Array) -> tuple[Callable[[], None], Array, Array]:
        """A call without arguments, the array it writes, and the same with its guards."""
        sizes: dict[tirx.Var, int] = {}
        buffers = [p for p in self.function.params if isinstance(p.ty, tirx.BufferType)]
        for p, array in zip(buffers, inputs, strict=False):
            assert len(p.ty.shape) == array.ndim, (p, p.ty.shape, array.shape)
            for extent, size in zip(p.ty.shape, array.shape, strict=True):
                if isinstance(extent, tirx.Var):
                    sizes.setdefault(extent, size)
        tensors = [tvm.runtime.tensor(np.array(a, order="C")) for a in inputs]
        outputs = buffers[len(inputs) : len(buffers) - self.scratch]
        assert len(outputs) == 1
        guarded, result = _guarded(_numbers(outputs[0], sizes))
        empty = tvm.runtime.tensor(result)
        tensors.append(tvm_ffi.from_dlpack(result) if result.size else empty)
        for p in buffers[len(buffers) - self.scratch :] if self.scratch else []:
            shape = _numbers(p, sizes)
            tensors.append(tvm.runtime.tensor(np.full(shape, np.nan, "float32")))
        scalars = [sizes[p] for p in self.function.params if p not in buffers]
        entry = self._entry
        return lambda: entry(*tensors, *scalars), result, guarded

    def __call__(self, *inputs: Array) -> Array:
        """The result; fails if the kernel wrote outside of it."""
        run, result, guarded = self.bind(*inputs)
        run()
        assert np.all(guarded[:_GUARD] == -7.0)
        assert np.all(guarded[_GUARD + result.size :] == -7.0)
        return result.copy()


def _guarded(shape: Sequence[int]) -> tuple[Array, Array]:
    """A NaN-filled array at a multiple of 64 bytes inside a larger one that is full of -7."""
    size = int(np.prod(shape))
    memory = np.empty(size + 2 * _GUARD + 16, "float32")
    skip = (-memory.ctypes.data // 4) % 16
    guarded = memory[skip : skip + size + 2 * _GUARD]
    guarded[:] = -7.0
    result = guarded[_GUARD : _GUARD + size].reshape(shape)
    result[:] = np.nan
    return guarded, result


def _numbers(buffer: tirx.Var, sizes: dict[tirx.Var, int]) -> list[int]:
    analyzer = Analyzer()
    for var, number in sizes.items():
        analyzer.bind(var, tirx.const(number, "int64"))
    return [int(analyzer.simplify(e).value) for e in buffer.ty.shape]


def tensor_type(shape: Sequence[int | tirx.Expr]) -> relax.TensorType:
    """The type of a float32 tensor."""
    full = [tirx.const(e, "int64") if isinstance(e, int) else e for e in shape]
    return relax.TensorType(full, "float32")


def fused(
    types: Sequence[relax.TensorType],
    build: Callable[..., relax.Expr],
    transform: Callable[[tvm.IRModule], tvm.IRModule] = lambda mod: mod,
) -> tirx.PrimFunc:
    """The one kernel that ``build(builder, *inputs)`` becomes."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{i}", t) for i, t in enumerate(types)]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = build(builder, *inputs)
            output = builder.emit_output(tvm.ir.Tuple([result]))
        builder.emit_func_output(output)
    mod = fuse(_elementwise(legalize(transform(builder.get()))))
    kernels = [f for f in mod.functions.values() if isinstance(f, tirx.PrimFunc)]
    assert len(kernels) == 1, [k.attrs for k in kernels]
    return kernels[0]


def _elementwise(mod: tvm.IRModule) -> tvm.IRModule:
    """Broadcasting kernels with results as large as an operand join what feeds that operand."""
    changed = {
        var: f.with_attr("op_pattern", 0)
        for var, f in mod.functions.items()
        if isinstance(f, tirx.PrimFunc) and f.attrs and int(f.attrs.get("op_pattern", 8)) == 1
    }
    mod.update(tvm.IRModule(changed))
    return mod


def compiled(function: tirx.PrimFunc, machine: Machine) -> Kernel:
    """The kernel, scheduled for the machine."""
    notes: list[str] = []
    scheduled = schedule(function, machine, notes.append)
    scratch = int(scheduled.attrs.get("rten.scratch", 0))
    return Kernel(machine, scheduled, scratch, notes)


def ints(*values: int | tirx.Expr) -> relax.ShapeExpr:
    """A list operand."""
    return relax.ShapeExpr([tirx.const(v, "int64") if isinstance(v, int) else v for v in values])
