"""The host program as data: steps in order, with the storage that each one reads and writes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from tvm import relax, tirx

from rten_aot.codegen.sizes import free_sizes
from rten_aot.targets.base import Work
from rten_aot.targets.cuda.kernel import Launch


@dataclass(eq=False)
class Storage:
    """A piece of memory that one value, and the views of it, live in."""


@dataclass(eq=False)
class Input(Storage):
    """The memory of graph input ``index``."""

    index: int


@dataclass(eq=False)
class Output(Storage):
    """The memory of graph output ``index``."""

    index: int


@dataclass(eq=False)
class Weight(Storage):
    """A constant at ``offset`` in the weights."""

    offset: int


@dataclass(eq=False)
class Planned(Storage):
    """Workspace memory of ``size`` bytes, in use from step ``first`` to step ``last``.

    A buffer with a ``home`` lies in that storage instead (a graph output, or the result of an If).
    One whose size depends on what the model computes is ``dynamic``: allocated during the run.
    """

    size: tirx.Expr
    first: int
    last: int
    factors: tuple[tirx.Expr, ...] = ()
    """What ``size`` is the product of."""
    dynamic: bool = False
    home: Storage | None = None
    index: int = -1

    def root(self) -> Storage:
        """The storage that this one lies in at last."""
        return self.home.root() if isinstance(self.home, Planned) else self.home or self


@dataclass(eq=False)
class Kept(Storage):
    """Memory whose address a branch left in ``slot``: that of one of ``values``."""

    slot: int
    values: list[Storage] = field(default_factory=list)


@dataclass(eq=False)
class HostMemory(Storage):
    """Memory of ``size`` bytes beside the CPU, in a program for a GPU."""

    size: tirx.Expr


@dataclass(eq=False)
class HostWeight(Storage):
    """The constant at ``offset`` in the weights, as the CPU reads it in a program for a GPU."""

    offset: int


@dataclass(frozen=True)
class KernelCall:
    """One call of kernel ``name``: pointers and sizes in the order of its parameters."""

    name: str
    pointers: tuple[Storage, ...]
    sizes: tuple[tirx.Expr, ...]
    nodes: tuple[int, ...] = ()
    """The nodes of the model that it came from, as far as they are known."""
    work: Work | None = None
    """Known in programs that are made to be profiled."""
    read_whole: tuple[tuple[Weight, int], ...] = ()
    """Large weights that it reads from end to end, with their bytes."""
    operands: Operands | None = None
    """What its pointers are, in a program for a GPU."""


@dataclass(frozen=True)
class Operands:
    """The pointers of a call: the first ``inputs`` are read, the last ``scratch`` are work memory.

    ``bytes`` are their sizes.
    """

    inputs: int
    scratch: int
    bytes: tuple[tirx.Expr, ...]
    on_host: bool
    """Whether the CPU computes the kernel."""


@dataclass(frozen=True)
class Copy:
    """Copies ``size`` bytes."""

    target: Storage
    source: Storage
    size: tirx.Expr


@dataclass(frozen=True)
class Allocate:
    """Allocates a dynamic buffer."""

    storage: Planned


@dataclass(frozen=True)
class Publish:
    """Leaves a size in a slot, from which ``Recall`` reads it after the branch."""

    slot: int
    value: tirx.Expr


@dataclass(frozen=True)
class Recall:
    """Defines a size variable by what was published in the slot."""

    var: tirx.Var
    slot: int


@dataclass(frozen=True)
class Measure:
    """Defines size variables by the int64 elements of a computed tensor."""

    sizes: tuple[tirx.Var, ...]
    storage: Storage


@dataclass(frozen=True)
class Keep:
    """Leaves the address of a storage in a slot."""

    slot: int
    storage: Storage


@dataclass(frozen=True)
class HandOut:
    """Tells the runtime where a graph output of dynamic shape lies."""

    output: int
    storage: Storage


@dataclass(frozen=True)
class Require:
    """A condition on sizes; if it does not hold, check ``check`` of the program has failed."""

    condition: tirx.Expr
    check: int


@dataclass(frozen=True)
class If:
    """One of two step lists, by the first element of ``condition``."""

    condition: Storage
    dtype: str
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]


@dataclass(frozen=True)
class Append:
    """Copies ``size`` bytes to where that many lie for each iteration before this one."""

    target: Storage
    source: Storage
    size: tirx.Expr
    slot: int


@dataclass(frozen=True)
class Loop:
    """Steps again and again, ``limit`` times at most, while ``condition``'s element is not zero.

    ``number`` (an int32) and ``slot`` hold the number of the iteration; in the end, ``slot`` holds
    how many there were.
    """

    slot: int
    limit: tirx.Expr
    condition: Storage
    dtype: str
    number: Storage
    body: tuple[Step, ...]


@dataclass(frozen=True)
class Reserve:
    """Allocates memory beside the CPU."""

    storage: HostMemory


@dataclass(frozen=True)
class Upload:
    """Copies ``size`` bytes to the GPU."""

    target: Storage
    source: HostMemory
    size: tirx.Expr


@dataclass(frozen=True)
class Download:
    """Copies ``size`` bytes from the GPU, and waits for them."""

    target: HostMemory
    source: Storage
    size: tirx.Expr


Step: TypeAlias = (
    KernelCall
    | Copy
    | Allocate
    | Publish
    | Recall
    | Measure
    | Keep
    | HandOut
    | Require
    | If
    | Append
    | Loop
    | Reserve
    | Upload
    | Download
)


@dataclass(frozen=True)
class SizeCheck:
    """A condition on sizes, the node that imposes it and what to say when it fails."""

    condition: tirx.Expr
    node: int
    message: str


@dataclass(frozen=True)
class Kernel:
    """A scheduled kernel, whose last ``scratch`` parameters are work memory."""

    name: str
    function: tirx.PrimFunc
    scratch: int
    work: Work | None = None
    """That of one call, in the sizes of the function's parameters."""
    launches: tuple[Launch, ...] | None = None
    """What a GPU does in place of the function; None if the CPU computes the kernel."""


_LARGE_WEIGHT = 1 << 18
"""Bytes of a weight that is worth mapping in one go when it is first read."""


def read_whole(kernel: Kernel, pointers: Sequence[Storage]) -> tuple[tuple[Weight, int], ...]:
    """The large weights among the pointers that the kernel reads from end to end."""
    if not (kernel.function.attrs and kernel.function.attrs.get("rten.reads_all")):
        return ()
    buffers = [p for p in kernel.function.params if isinstance(p.ty, tirx.BufferType)]
    found = []
    for param, storage in zip(buffers, pointers, strict=True):
        shape = param.ty.shape
        # The sizes of a weight that the model reshapes may be known at run time only.
        if isinstance(storage, Weight) and all(isinstance(n, tirx.IntImm) for n in shape):
            count = math.prod(int(n.value) for n in shape)
            size = count * np.dtype(str(param.ty.dtype)).itemsize
            if size >= _LARGE_WEIGHT:
                found.append((storage, size))
    return tuple(found)


@dataclass
class Program:
    """Everything the host program needs: steps, buffers, weights and sizes."""

    steps: tuple[Step, ...]
    buffers: list[Planned]
    weights: list[tuple[int, npt.NDArray[np.generic]]]
    weight_bytes: int
    input_types: list[relax.TensorType]
    output_types: list[relax.TensorType]
    sizes: list[tirx.Var]
    """Size variables that the inputs' shapes bind, in order of first use."""
    slots: int
    """Number of int64 slots: one for each of ``sizes``, then those that steps publish in."""
    checks: list[SizeCheck]
    """All conditions on sizes; the first ``early_checks`` are tested before the first step."""
    early_checks: int
    dynamic_dims: dict[int, list[int | None]] = field(default_factory=dict)
    """For an output of dynamic shape: the slot that holds each size, None if it is not dynamic."""

    @property
    def is_static(self) -> bool:
        """Whether every buffer's size is known at compile time."""
        return all(isinstance(b.size, tirx.IntImm) and not b.dynamic for b in self.buffers)


@dataclass(frozen=True)
class SourceFunction:
    """A Relax function after scheduling, with its checks."""

    function: relax.Function
    checks: Sequence[SizeCheck] = ()
    measured: Sequence[Sequence[tirx.Var]] = ()
    """Sizes whose values the last results of the function hold, by result."""


def kernel_sizes(function: tirx.PrimFunc) -> list[tirx.Var]:
    """The size variables of a kernel: int64 parameters, then those that only shapes speak of."""
    found: dict[tirx.Var, None] = {}
    for param in function.params:
        if not isinstance(param.ty, tirx.BufferType):
            found.setdefault(param)
    for param in function.params:
        if isinstance(param.ty, tirx.BufferType):
            for dim in param.ty.shape:
                for var in sorted(free_sizes(dim), key=lambda v: v.name):
                    found.setdefault(var)
    return list(found)
