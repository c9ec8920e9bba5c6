"""The whole way from a .rten file to a shared library."""

from __future__ import annotations

import dataclasses
import functools
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, tirx

import rten_aot
from rten_aot.codegen.build import Code, Level, make_code, make_library
from rten_aot.codegen.entry import Interface
from rten_aot.codegen.host import Site
from rten_aot.codegen.link import Form, c_header, check_form
from rten_aot.codegen.nvrtc import Image
from rten_aot.codegen.objects import generate
from rten_aot.codegen.platforms import platform_of
from rten_aot.codegen.program import Kernel, SizeCheck, SourceFunction
from rten_aot.diagnostics import Note, Progress, ignore_note, ignore_progress
from rten_aot.errors import CompileError
from rten_aot.files import check_writable, new_file
from rten_aot.format import read_model
from rten_aot.format.graph import Dim, Model
from rten_aot.importer import ImportedFunction, ImportedModel, TensorSpec, import_model
from rten_aot.options import WEIGHTS, Emit, Libc, Weights, default_output
from rten_aot.passes.apply_schedules import apply_schedules
from rten_aot.passes.base import is_relax
from rten_aot.passes.fold_constants import Evaluate
from rten_aot.passes.pipeline import lower, optimise
from rten_aot.records import load_choices
from rten_aot.runtime import ModelRunError, load
from rten_aot.targets import get_machine, get_machines, packing_machine, work
from rten_aot.targets.base import Machine
from rten_aot.targets.common.choices import Choice, Decisions
from rten_aot.targets.cuda.target import Gpu

_P = ParamSpec("_P")
_R = TypeVar("_R")

_FORMS: Mapping[Emit, Form] = {"lib": "library", "obj": "object", "static": "archive"}


def _one_at_a_time(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Threads wait for each other: TVM's builders of modules are one stack for the process."""
    lock = threading.RLock()

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with lock:
            return function(*args, **kwargs)

    return call


@_one_at_a_time
def compile(
    model: str | Path | Model,
    output: str | Path | None = None,
    *,
    target: str = "llvm",
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    dims: Mapping[str, int] | None = None,
    opt_level: int = 3,
    emit: Emit = "lib",
    explain: Note | None = None,
    progress: Progress | None = None,
    symbol_prefix: str | None = None,
    libc: Libc | None = None,
    profile: bool = False,
    db: str | Path | None = None,
    warn: Note | None = None,
    weights: Weights = "fp32",
    choices: Mapping[str, Choice] | None = None,
) -> Path:
    """Compile a model; see ``rten_aot.compile``, which has the same parameters but for ``choices``.

    A model that is in memory already needs an ``output``. ``choices`` are used in place of a file's
    records, by the keys of problems.
    """
    begin = time.perf_counter()
    machines = get_machines(target, libc)
    out = _output(model, output, emit, target)
    check_writable(out)
    if emit in _FORMS:
        check_form(platform_of(machines[0].triple), _FORMS[emit])
    _check_weights(weights, opt_level, machines[0])
    note = explain or ignore_note

    def stage(name: str) -> None:
        (progress or ignore_progress)(name, time.perf_counter() - begin)

    if emit == "header":
        return _write(out, c_header(symbol_prefix))
    if len(machines) > 1:
        _check_several(target, emit, tuned=db is not None or bool(choices))
    if db is not None:
        choices = load_choices(Path(db), machines[0], warn or _warn)
    if choices:
        _check_level(opt_level)
    stage("reading")
    parsed = model if isinstance(model, Model) else read_model(model)
    stage("importing")
    imported = import_model(parsed, shapes=shapes, dims=dims)
    stage("optimising")
    packing = packing_machine(machines)
    # Constants are the same for all levels; the last one is what most computers can run.
    evaluate = _evaluator(machines[-1])
    halves = weights == "fp16"
    mod = optimise(imported.module(), packing, opt_level, evaluate, note, choices, halves=halves)
    if emit == "relax":
        return _write(out, mod.script())
    levels = _levels(mod, parsed, imported, machines, note, stage, weights, profile=profile)
    functions, device = levels[0].code.functions, levels[0].code.device
    if emit == "cuda":
        if device is None:
            raise CompileError(f'"cuda" is text for GPUs, but the target is "{target}"')
        return _write(out, device.text)
    if emit == "tir":
        named = {tvm.ir.GlobalVar(n): f for n, f in functions.items()}
        return _write(out, tvm.IRModule(named).script())
    if emit in ("llvm", "asm"):
        stage("generating machine code")
        kind = "ll" if emit == "llvm" else "s"
        llvm_target = machines[0].tvm_target()
        with new_file(out) as path:
            generate(functions, llvm_target, path, kind)
        return out
    make_library(
        levels,
        out,
        symbol_prefix=symbol_prefix,
        form=_FORMS[emit],
        stage=stage,
    )
    if emit == "static":
        _write(out.with_suffix(".h"), c_header(symbol_prefix))
    return out


def _levels(
    mod: tvm.IRModule,
    model: Model,
    imported: ImportedModel,
    machines: Sequence[Machine],
    note: Note,
    stage: Callable[[str], None],
    weights: Weights,
    *,
    profile: bool,
) -> list[Level]:
    """The code for each machine, and what is said of it."""
    made: list[tuple[Machine, Code, dict[str, Decisions]]] = []
    several = len(machines) > 1
    for index, machine in enumerate(machines):
        code, decisions = _schedule(
            mod,
            imported.functions,
            machine,
            _formatted(note, f"{machine.name}: {{}}") if several else note,
            _formatted(stage, f"{{}} for {machine.name}") if several else stage,
            profile=profile,
            prefix=f"level{index}_" if several else "",
        )
        made.append((machine, code, decisions))
    sizes = [code.workspace for _, code, _ in made]
    known = [size for size in sizes if size is not None]
    shared = {
        "levels": [machine.name for machine in machines] if several else [],
        # Enough for every level, since the metadata is read before one is chosen.
        "workspace": max(known) if len(known) == len(sizes) else None,
        "weights": weights,
    }
    return [Level(c, m, partial(_interface, model, imported, m, c, d, shared)) for m, c, d in made]


def _formatted(take: Callable[[str], None], form: str) -> Callable[[str], None]:
    """``take``, which gets texts inside ``form``."""
    return lambda text: take(form.format(text))


def _schedule(
    mod: tvm.IRModule,
    imported: Mapping[str, ImportedFunction],
    machine: Machine,
    note: Note,
    stage: Callable[[str], None],
    *,
    profile: bool = False,
    prefix: str = "",
) -> tuple[Code, dict[str, Decisions]]:
    """The code, and by the names of kernels what was decided for them.

    The names of its functions begin with ``prefix``.
    """
    scheduled = apply_schedules(
        mod, machine, note, lambda done, total: stage(f"scheduling kernel {done + 1} of {total}")
    )
    kernels = {
        name: Kernel(
            prefix + s.name,
            s.function,
            s.scratch,
            work(s.source) if profile else None,
            s.launches,
        )
        for name, s in scheduled.items()
    }
    sources = {
        var.name_hint: _source(function, imported.get(var.name_hint))
        for var, function in mod.functions.items()
        if is_relax(function)
    }
    decisions = {
        prefix + s.name: s.decisions for s in scheduled.values() if s.decisions is not None
    }
    gpu = machine if isinstance(machine, Gpu) else None
    return make_code(sources, kernels, profile=profile, prefix=prefix, gpu=gpu), decisions


def _source(function: relax.Function, origin: ImportedFunction | None) -> SourceFunction:
    if origin is None:
        return SourceFunction(function)
    checks = [SizeCheck(c.condition, c.node, c.message) for c in origin.checks]
    return SourceFunction(function, checks, origin.measured)


def _evaluator(machine: Machine) -> Evaluate:
    """Runs modules without inputs, for constant folding, on the machine that compiles."""
    if isinstance(machine, Gpu):
        machine = machine.host
    host = machine if machine.runs_here() else get_machine("llvm -mcpu=native")

    def evaluate(mod: tvm.IRModule) -> list[npt.NDArray[np.generic]] | None:
        code, _ = _schedule(lower(mod, fused=False), {}, host, ignore_note, lambda _name: None)
        names = [f"output_{i}" for i in range(len(code.program.output_types))]
        outputs = [
            TensorSpec(n, str(ty.dtype), tuple(int(d.value) for d in ty.shape.values))
            for n, ty in zip(names, code.program.output_types, strict=True)
        ]
        facts = _facts((), outputs, host, code, 0)
        interface = Interface([], names, [], {}, host.name, host.features, facts)
        with tempfile.TemporaryDirectory(prefix="rten-aot-fold-") as folder:
            library = Path(folder, "constants.so")
            make_library([Level(code, host, lambda _size, _images: interface)], library)
            with load(library, num_threads=1) as model:
                try:
                    return list(model())
                except ModelRunError:
                    return None

    return evaluate


def _interface(
    model: Model,
    imported: ImportedModel,
    machine: Machine,
    code: Code,
    decisions: Mapping[str, Decisions],
    shared: Mapping[str, Any],
    code_bytes: int,
    images: Sequence[Image],
) -> Interface:
    """What the tables say of a level; ``shared`` holds what they say of all levels."""
    facts = _facts(imported.inputs, imported.outputs, machine, code, code_bytes)
    if isinstance(machine, Gpu):
        facts["target"] |= {"kind": "cuda", "archs": list(machine.archs)}
        facts["kernels"] = _resources(images)
    facts["target"]["levels"] = shared["levels"]
    facts["sizes"]["workspace"] = shared["workspace"]
    facts["model"] = {
        "sha256": model.sha256,
        "format": model.format,
        "weights": shared["weights"],
        "metadata": dict(model.metadata),
    }
    if code.sites is not None:
        facts["profile"] = [
            _site_facts(site, imported.nodes, decisions.get(site.kernel)) for site in code.sites
        ]
    return Interface(
        [t.name for t in imported.inputs],
        [t.name for t in imported.outputs],
        imported.nodes,
        imported.size_names,
        machine.name,
        machine.features,
        facts,
    )


def _site_facts(
    site: Site, nodes: Sequence[tuple[str, str]], decisions: Decisions | None
) -> dict[str, Any]:
    """A timed step; its work is left out where only a run tells it."""
    facts: dict[str, Any] = {
        "kernel": site.kernel,
        "nodes": [{"name": nodes[i][0], "op": nodes[i][1]} for i in site.nodes],
    }
    for key, size in (("flops", site.work.flops), ("bytes", site.work.bytes)):
        if isinstance(size, tirx.IntImm):
            facts[key] = int(size.value)
    if decisions is not None and decisions.key is not None:
        facts["problem"] = decisions.key
        facts["choice"] = decisions.choice.fields
    return facts


def _facts(
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    machine: Machine,
    code: Code,
    code_bytes: int,
) -> dict[str, Any]:
    """The artifact's metadata, but for the model's own."""

    def tensors(specs: Sequence[TensorSpec]) -> list[dict[str, Any]]:
        return [{"name": t.name, "dtype": t.dtype, "shape": list(t.shape)} for t in specs]

    return {
        "abi": 1,
        "model": {},
        "inputs": tensors(inputs),
        "outputs": tensors(outputs),
        "target": {
            "kind": "llvm",
            "triple": machine.triple,
            "cpu": machine.cpu,
            "features": list(machine.features),
            "levels": [],
            "archs": [],
        },
        "sizes": {
            "weights": code.program.weight_bytes,
            "code": code_bytes,
            "workspace": code.workspace,
        },
        "versions": {
            "rten_aot": rten_aot.__version__,
            "tvm": tvm.__version__,
            "ziglang": metadata.version("ziglang"),
        },
    }


def _resources(images: Sequence[Image]) -> dict[str, dict[str, dict[str, int]]]:
    """What each of a GPU's kernels uses, by its name and then the architecture."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for image in images:
        if not image.is_ptx:
            for name, used in image.kernels.items():
                found.setdefault(name, {})[f"sm_{image.arch}"] = dataclasses.asdict(used)
    return found


def _check_several(target: str, emit: Emit, *, tuned: bool) -> None:
    """Refuse what has no meaning for a library for several CPUs."""
    if emit in ("tir", "llvm", "asm"):
        raise CompileError(
            f'"{emit}" is a stage of the code for one CPU, but the target is "{target}"',
            hint="name one of them",
        )
    if tuned:
        raise CompileError(
            f'tuning records choose how weights are packed for one CPU; those of "{target}" '
            "share one packing",
            hint="compile without the records, or for one CPU",
        )


def _check_level(level: int) -> None:
    if level < 3:
        raise CompileError(
            f"tuning records are of use at -O3 only, not at -O{level}",
            hint="compile without them, or at -O3",
        )


def _check_weights(weights: str, level: int, machine: Machine) -> None:
    if weights not in WEIGHTS:
        raise CompileError(f'weights "{weights}" are unknown', hint=f"one of {', '.join(WEIGHTS)}")
    if weights == "fp16" and isinstance(machine, Gpu):
        raise CompileError(
            "weights are stored in fp16 for CPUs only", hint="for GPUs there is --precision fp16"
        )
    if weights == "fp16" and level < 3:
        raise CompileError(
            f"weights are stored in fp16 at -O3 only, not at -O{level}",
            hint="compile with fp32, or at -O3",
        )


def _warn(line: str) -> None:
    warnings.warn(line, stacklevel=6)  # where rten_aot.compile was called


def _output(model: str | Path | Model, output: str | Path | None, emit: Emit, target: str) -> Path:
    if output is None:
        assert not isinstance(model, Model), "a model in memory has no place beside it"
        return default_output(model, emit, target)
    out = Path(output)
    if emit == "static" and out.suffix == ".h":
        raise CompileError(f'the archive cannot be "{out}", which is the name of its header')
    return out


def _write(path: Path, text: str) -> Path:
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path
