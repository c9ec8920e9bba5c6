"""From scheduled kernels and Relax functions to a linked library, or to any stage on the way."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tvm import tirx

from rten_aot.codegen import elf, wasm
from rten_aot.codegen.cuda import DeviceCode, device_code, images, tables, write_images
from rten_aot.codegen.entry import Interface, Version, model_source
from rten_aot.codegen.host import Site, host_module
from rten_aot.codegen.linearise import build_program
from rten_aot.codegen.link import Form, link
from rten_aot.codegen.memory import Lifetime, place
from rten_aot.codegen.nvrtc import Image
from rten_aot.codegen.objects import generate_all, raw_kernel
from rten_aot.codegen.platforms import platform_of
from rten_aot.codegen.program import Kernel, Program, SourceFunction
from rten_aot.codegen.sides import divided
from rten_aot.errors import InternalError
from rten_aot.targets.base import Machine
from rten_aot.targets.cuda.target import Gpu


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
    prefix: str = ""
    """What the names of the host program's functions begin with."""
    device: DeviceCode | None = None
    """The kernels of a GPU."""

    @property
    def functions(self) -> dict[str, tirx.PrimFunc]:
        """All functions by name."""
        return {**self.kernels, **self.host}


@dataclass(frozen=True)
class Level:
    """A model's code for one CPU."""

    code: Code
    machine: Machine
    interface: Callable[[int, Sequence[Image]], Interface]
    """What the tables say besides, by the number of bytes of machine code in all, and the machine
    code of a GPU."""


def make_code(
    sources: Mapping[str, SourceFunction],
    kernels: Mapping[str, Kernel],
    *,
    profile: bool = False,
    prefix: str = "",
    gpu: Gpu | None = None,
) -> Code:
    """The host program of ``sources["main"]`` with the kernels that it calls.

    ``kernels`` are by the names that the Relax functions use. With ``profile``, for which they need
    their work, the program times its steps. The names of the program's functions begin with
    ``prefix``. The program is one for ``gpu``, if that is given.
    """
    program = build_program(sources, kernels, of_gpu=gpu is not None)
    if gpu is not None:
        program = divided(program)
    offsets: list[int] | None = None
    workspace: int | None = None
    if program.is_static:
        lifetimes = [Lifetime(int(b.size.value), b.first, b.last) for b in program.buffers]
        offsets, workspace = place(lifetimes)
    distinct = {k.name: k for k in kernels.values()}
    of_cpu = [k for k in distinct.values() if k.launches is None]
    raw = {k.name: raw_kernel(k.name, k.function) for k in of_cpu}
    device, stubs = None, dict[str, tirx.PrimFunc]()
    if gpu is not None:
        device, stubs = device_code(list(distinct.values()), gpu.precision)
    sites: list[Site] | None = [] if profile else None
    host = {prefix + n: f for n, f in host_module(program, offsets, sites).items()}
    return Code(program, raw, host | stubs, workspace, sites, prefix, device)


def make_objects(levels: Sequence[Level], folder: Path) -> list[Path]:
    """Object files of the weights, which the linker wants first, and of the code, in ``folder``."""
    program, machine = levels[0].code.program, levels[0].machine
    _check_shared(levels)
    objects = []
    if program.weight_bytes:
        objects.append(folder / "weights.o")
        content = (objects[0], program.weights, program.weight_bytes)
        instructions = platform_of(machine.triple).machine
        if instructions == "wasm32":
            wasm.write_weights_object(*content)
        else:
            elf.write_weights_object(*content, machine=instructions)
    for index, level in enumerate(levels):
        own = folder / f"level{index}"
        own.mkdir()
        code = level.code
        objects += generate_all(code.kernels, code.host, level.machine.tvm_target(), own)
    return objects


def _check_shared(levels: Sequence[Level]) -> None:
    """Levels share the weights and the tables."""
    first = levels[0].code.program
    places = [offset for offset, _ in first.weights]
    for program in (level.code.program for level in levels[1:]):
        shared = [offset for offset, _ in program.weights] == places
        if not shared or program.slots != first.slots or len(program.checks) != len(first.checks):
            raise InternalError("the code for several CPUs does not agree on weights and sizes")


def make_library(
    levels: Sequence[Level],
    output: Path,
    *,
    symbol_prefix: str | None = None,
    form: Form = "library",
    stage: Callable[[str], None] = lambda _name: None,
) -> None:
    """Write the library, or an object or archive with the same content.

    It is for one CPU, or for several, the best first. An existing file is replaced when all has
    gone well.
    """
    with tempfile.TemporaryDirectory(prefix="rten-aot-") as name:
        folder = Path(name)
        stage("generating machine code")
        objects = make_objects(levels, folder)
        made, device_tables = _device(levels[0], folder, objects, stage)
        size = sum(o.stat().st_size for o in objects if o.name != "weights.o")
        source = folder / "model.c"
        text = model_source([_version(level, size, made) for level in levels])
        source.write_text(text + device_tables)
        stage("linking")
        link(
            objects,
            output,
            levels[0].machine.triple,
            c_sources=[source],
            symbol_prefix=symbol_prefix,
            workdir=folder,
            form=form,
            profile=levels[0].code.sites is not None,
            levels=len(levels) > 1,
            cuda=levels[0].code.device is not None,
        )


def _device(
    level: Level, folder: Path, objects: list[Path], stage: Callable[[str], None]
) -> tuple[list[Image], str]:
    """The machine code of a GPU's kernels, whose objects join ``objects``, and its tables."""
    device, machine = level.code.device, level.machine
    if device is None or not isinstance(machine, Gpu):
        return [], ""
    stage(f"generating machine code for {', '.join(machine.archs)}")
    made = images(device, machine.archs)
    instructions = platform_of(machine.triple).machine
    assert instructions != "wasm32"
    objects += write_images(made, folder, instructions)
    return made, tables(device, made, level.code.program.weight_bytes)


def _version(level: Level, size: int, made: Sequence[Image]) -> Version:
    code = level.code
    interface = level.interface(size, made)
    return Version(code.program, interface, code.workspace, code.sites, code.prefix)
