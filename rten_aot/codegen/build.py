"""From scheduled kernels and Relax functions to a linked library, or to any stage on the way."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tvm import tirx

from rten_aot.codegen.elf import write_weights_object
from rten_aot.codegen.entry import Interface, model_source
from rten_aot.codegen.host import Site, host_module
from rten_aot.codegen.linearise import build_program
from rten_aot.codegen.link import link, machine_of
from rten_aot.codegen.memory import Lifetime, place
from rten_aot.codegen.objects import generate_all, raw_kernel
from rten_aot.codegen.program import Kernel, Program, SourceFunction
from rten_aot.targets.base import Machine


@dataclass(frozen=True)
class Code:
    """A model as plain C functions in TIR, with what its tables need."""

    program: Program
    kernels: Mapping[str, tirx.PrimFunc]
    host: Mapping[str, tirx.PrimFunc]
    """What calls the kernels."""
    workspace: int | None
    """Bytes of the planned buffers; None if they depend on the inputs' shapes."""
    sites: Sequence[Site] | None = None
    """The steps that the host program times; None if it times none."""

    @property
    def functions(self) -> dict[str, tirx.PrimFunc]:
        """All functions by name."""
        return {**self.kernels, **self.host}


def make_code(
    sources: Mapping[str, SourceFunction], kernels: Mapping[str, Kernel], *, profile: bool = False
) -> Code:
    """The host program of ``sources["main"]`` with the kernels that it calls.

    ``kernels`` are by the names that the Relax functions use. With ``profile``, for which they need
    their work, the program times its steps.
    """
    program = build_program(sources, kernels)
    offsets: list[int] | None = None
    workspace: int | None = None
    if program.is_static:
        lifetimes = [Lifetime(int(b.size.value), b.first, b.last) for b in program.buffers]
        offsets, workspace = place(lifetimes)
    raw = {k.name: raw_kernel(k.name, k.function) for k in kernels.values()}
    sites: list[Site] | None = [] if profile else None
    return Code(program, raw, host_module(program, offsets, sites), workspace, sites)


def make_objects(code: Code, machine: Machine, folder: Path) -> list[Path]:
    """Object files of the weights, which the linker wants first, and of the code, in ``folder``."""
    weights = folder / "weights.o"
    if code.program.weight_bytes:
        write_weights_object(
            weights,
            code.program.weights,
            code.program.weight_bytes,
            machine=machine_of(machine.triple),
        )
    objects = generate_all(code.kernels, code.host, machine.tvm_target(), folder)
    return [weights, *objects] if code.program.weight_bytes else objects


def make_library(
    code: Code,
    machine: Machine,
    interface: Callable[[int], Interface],
    output: Path,
    *,
    symbol_prefix: str | None = None,
    relocatable: bool = False,
    stage: Callable[[str], None] = lambda _name: None,
) -> None:
    """Write the shared library, or one relocatable object with the same content.

    An existing file is replaced when all has gone well. ``interface`` gets the number of bytes of
    machine code.
    """
    with tempfile.TemporaryDirectory(prefix="rten-aot-") as name:
        folder = Path(name)
        stage("generating machine code")
        objects = make_objects(code, machine, folder)
        size = sum(o.stat().st_size for o in objects if o.name != "weights.o")
        source = folder / "model.c"
        source.write_text(model_source(code.program, interface(size), code.workspace, code.sites))
        stage("linking")
        link(
            objects,
            output,
            machine.triple,
            c_sources=[source],
            symbol_prefix=symbol_prefix,
            workdir=folder,
            relocatable=relocatable,
            profile=code.sites is not None,
        )
