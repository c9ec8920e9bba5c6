"""The whole way from a .rten file to a shared library."""

from __future__ import annotations

import errno
import functools
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, tirx

import rten_aot
from rten_aot.codegen.build import Code, make_code, make_library
from rten_aot.codegen.entry import Interface
from rten_aot.codegen.host import Site
from rten_aot.codegen.link import c_header
from rten_aot.codegen.objects import generate
from rten_aot.codegen.program import Kernel, SizeCheck, SourceFunction
from rten_aot.diagnostics import Note, Progress, ignore_note, ignore_progress
from rten_aot.format import read_model
from rten_aot.format.graph import Dim, Model
from rten_aot.importer import ImportedFunction, ImportedModel, TensorSpec, import_model
from rten_aot.options import Emit, default_output
from rten_aot.passes.apply_schedules import apply_schedules
from rten_aot.passes.base import is_relax
from rten_aot.passes.fold_constants import Evaluate
from rten_aot.passes.pipeline import lower, optimise
from rten_aot.runtime import ModelRunError, load
from rten_aot.targets import get_machine, work
from rten_aot.targets.base import Machine

_P = ParamSpec("_P")
_R = TypeVar("_R")


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
    profile: bool = False,
) -> Path:
    """Compile a model; see ``rten_aot.compile``, which has the same parameters.

    A model that is in memory already needs an ``output``.
    """
    out = _output(model, output, emit)
    _check_output(out)
    begin = time.perf_counter()
    note = explain or ignore_note

    def stage(name: str) -> None:
        (progress or ignore_progress)(name, time.perf_counter() - begin)

    machine = get_machine(target)
    if emit == "header":
        return _write(out, c_header(symbol_prefix))
    stage("reading")
    parsed = model if isinstance(model, Model) else read_model(model)
    stage("importing")
    imported = import_model(parsed, shapes=shapes, dims=dims)
    stage("optimising")
    mod = optimise(imported.module(), machine, opt_level, _evaluator(machine), note)
    if emit == "relax":
        return _write(out, mod.script())
    code = _schedule(mod, imported.functions, machine, note, stage, profile=profile)
    if emit == "tir":
        functions = {tvm.ir.GlobalVar(n): f for n, f in code.functions.items()}
        return _write(out, tvm.IRModule(functions).script())
    if emit in ("llvm", "asm"):
        stage("generating machine code")
        kind = "ll" if emit == "llvm" else "s"
        return _write_with(
            out, lambda path: generate(code.functions, machine.tvm_target(), path, kind)
        )
    make_library(
        code,
        machine,
        lambda size: _interface(parsed, imported, machine, code, size),
        out,
        symbol_prefix=symbol_prefix,
        relocatable=emit == "obj",
        stage=stage,
    )
    return out


def _schedule(
    mod: tvm.IRModule,
    imported: Mapping[str, ImportedFunction],
    machine: Machine,
    note: Note,
    stage: Callable[[str], None],
    *,
    profile: bool = False,
) -> Code:
    scheduled = apply_schedules(
        mod, machine, note, lambda done, total: stage(f"scheduling kernel {done + 1} of {total}")
    )
    kernels = {
        name: Kernel(s.name, s.function, s.scratch, work(s.source) if profile else None)
        for name, s in scheduled.items()
    }
    sources = {
        var.name_hint: _source(function, imported.get(var.name_hint))
        for var, function in mod.functions.items()
        if is_relax(function)
    }
    return make_code(sources, kernels, profile=profile)


def _source(function: relax.Function, origin: ImportedFunction | None) -> SourceFunction:
    if origin is None:
        return SourceFunction(function)
    checks = [SizeCheck(c.condition, c.node, c.message) for c in origin.checks]
    return SourceFunction(function, checks, origin.measured)


def _evaluator(machine: Machine) -> Evaluate:
    """Runs modules without inputs, for constant folding, on the machine that compiles."""
    host = machine if machine.runs_here() else get_machine("llvm -mcpu=native")

    def evaluate(mod: tvm.IRModule) -> list[npt.NDArray[np.generic]] | None:
        code = _schedule(lower(mod, fused=False), {}, host, ignore_note, lambda _name: None)
        names = [f"output_{i}" for i in range(len(code.program.output_types))]
        outputs = [
            TensorSpec(n, str(ty.dtype), tuple(int(d.value) for d in ty.shape.values))
            for n, ty in zip(names, code.program.output_types, strict=True)
        ]
        facts = _facts((), outputs, host, code, 0)
        interface = Interface([], names, [], {}, host.name, host.features, facts)
        with tempfile.TemporaryDirectory(prefix="rten-aot-fold-") as folder:
            library = Path(folder, "constants.so")
            make_library(code, host, lambda _size: interface, library)
            with load(library, num_threads=1) as model:
                try:
                    return list(model())
                except ModelRunError:
                    return None

    return evaluate


def _interface(
    model: Model, imported: ImportedModel, machine: Machine, code: Code, code_bytes: int
) -> Interface:
    facts = _facts(imported.inputs, imported.outputs, machine, code, code_bytes)
    facts["model"] = {
        "sha256": model.sha256,
        "format": model.format,
        "metadata": dict(model.metadata),
    }
    if code.sites is not None:
        facts["profile"] = [_site_facts(site, imported.nodes) for site in code.sites]
    return Interface(
        [t.name for t in imported.inputs],
        [t.name for t in imported.outputs],
        imported.nodes,
        imported.size_names,
        machine.name,
        machine.features,
        facts,
    )


def _site_facts(site: Site, nodes: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """A timed step; its work is left out where only a run tells it."""
    facts: dict[str, Any] = {
        "kernel": site.kernel,
        "nodes": [{"name": nodes[i][0], "op": nodes[i][1]} for i in site.nodes],
    }
    for key, size in (("flops", site.work.flops), ("bytes", site.work.bytes)):
        if isinstance(size, tirx.IntImm):
            facts[key] = int(size.value)
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


def _output(model: str | Path | Model, output: str | Path | None, emit: Emit) -> Path:
    if output is not None:
        return Path(output)
    assert not isinstance(model, Model), "a model in memory has no place beside it"
    return default_output(model, emit)


def _check_output(path: Path) -> None:
    """Fail before the work, not after it, where the file cannot be written."""
    folder = path.resolve().parent
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


def _write(path: Path, text: str) -> Path:
    return _write_with(path, lambda temporary: temporary.write_text(text))


def _write_with(path: Path, write: Callable[[Path], object]) -> Path:
    """Write a file as a whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        shutil.copymode(path, temporary) if path.exists() else temporary.chmod(0o644)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
