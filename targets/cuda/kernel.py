"""A kernel for the GPU: its text, and how the host launches it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Expr
from tvm.sym import Analyzer

from rten_aot.targets.common.expr import Buffer, constant_int, i64
from rten_aot.targets.common.stages import Kernel
from rten_aot.targets.cuda.text import INDEX, Indices, Writer
from rten_aot.targets.cuda.words import c_type

PREAMBLE = """\
struct rten_cuda_failure_record { int claimed, kind, node; long long value; };
__device__ rten_cuda_failure_record rten_cuda_failure;

static __device__ __forceinline__ int rten_aot_fail(int kind, int node, long long value) {
  if (atomicCAS(&rten_cuda_failure.claimed, 0, 1) == 0) {
    rten_cuda_failure.kind = kind;
    rten_cuda_failure.node = node;
    rten_cuda_failure.value = value;
  }
  return 0;
}

template <typename T> static __device__ __forceinline__ T rten_min(T a, T b) {
  return a < b ? a : b;
}
template <typename T> static __device__ __forceinline__ T rten_max(T a, T b) {
  return a > b ? a : b;
}
template <typename T> static __device__ __forceinline__ T rten_abs(T a) {
  return a < 0 ? -a : a;
}
template <typename T> static __device__ __forceinline__ T rten_floordiv(T a, T b) {
  T q = a / b;
  return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}
template <typename T> static __device__ __forceinline__ T rten_floormod(T a, T b) {
  T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
"""
"""What the text of every model begins with."""

NAME = "$NAME$"
"""What stands for the kernel's name in its text."""


@dataclass(frozen=True, eq=False)
class Launch:
    """One kernel on the GPU, as part of a kernel of the model."""

    text: str
    """Its definition."""
    arguments: tuple[Buffer | tirx.Var, ...]
    """Parameters of the model's kernel: buffers, and sizes."""
    grid: tuple[Expr, Expr, Expr]
    """Blocks along x, y and z, in terms of the sizes."""
    threads: int
    """In a block."""
    fails: bool
    """Whether it may record a failure."""
    fit: Expr | None = None
    """A condition on sizes under which 32 bits do for indices; None if the text has one version."""

    def named(self, name: str, index: str) -> str:
        """The definition of the kernel under a name, with a type of indices."""
        return self.text.replace(NAME, name).replace(INDEX, index)


def grid(*counts: Expr | int) -> tuple[Expr, Expr, Expr]:
    """Up to three numbers of blocks."""
    whole = [i64(c) for c in (*counts, 1, 1, 1)[:3]]
    return whole[0], whole[1], whole[2]


def launch(writer: Writer, blocks: tuple[Expr, Expr, Expr], threads: int, least: int = 1) -> Launch:
    """The kernel whose body was written.

    ``least`` is how many blocks a multiprocessor should have room for if 32 bits do for indices:
    longer ones take the registers of the others.
    """
    parameters, sizes = [], []
    for parameter, name in writer.parameters.items():
        if isinstance(parameter.ty, tirx.BufferType):
            word = "" if parameter in writer.written else "const "
            dtype = c_type(str(parameter.ty.dtype))
            parameters.append(f"{word}{dtype} *__restrict__ {name}")
        else:
            parameters.append(f"const long long {name}_")
            sizes.append(f"const {writer.index} {name} = ({writer.index}){name}_;")
    bounds = f"{threads}" if least == 1 else f"{threads}, sizeof({writer.index}) == 4 ? {least} : 1"
    head = f'extern "C" __global__ void __launch_bounds__({bounds})'
    takes = f"{NAME}({', '.join(parameters)}) {{"
    text = "\n".join([head, takes, *(f"  {line}" for line in (*sizes, *writer.lines)), "}", ""])
    arguments = tuple(writer.parameters)
    return Launch(text, arguments, blocks, threads, writer.fails, writer.indices.fit)


_MOST_ELEMENTS = 1 << 30
"""Buffers of so many elements are addressed with 32 bits, whatever is added to an index."""


def indices(kernel: Kernel) -> Indices:
    """What does for everything that the kernel addresses."""
    sizes = [p for p in kernel.params if not isinstance(p.ty, tirx.BufferType)]
    terms: list[Expr] = [size < i64(_MOST_ELEMENTS) for size in (*sizes, *kernel.sizes)]
    for buffer in (*kernel.buffers, *(s.buffer for s in kernel.stages)):
        count: Expr = i64(1)
        for extent in buffer.ty.shape:
            count = count * i64(extent)
        terms.append(Analyzer().simplify(count) < i64(_MOST_ELEMENTS))
    fit = Analyzer().simplify(functools.reduce(tirx.And, terms))
    known = constant_int(fit)
    if known is not None:
        return Indices("int" if known else "long long")
    return Indices(INDEX, fit)
