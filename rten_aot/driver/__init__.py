"""The whole way from a .rten file to a shared library."""

from __future__ import annotations

import functools
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

import tvm
import tvm_ffi

from rten_aot.codegen.build import Code, Level, make_library
from rten_aot.codegen.link import Form, c_header, check_form
from rten_aot.codegen.objects import generate
from rten_aot.codegen.platforms import platform_of
from rten_aot.diagnostics import Note, Progress, ignore_note, ignore_progress
from rten_aot.driver.checks import check_level, check_several, check_weights
from rten_aot.driver.facts import interface
from rten_aot.driver.schedule import evaluator, schedule
from rten_aot.errors import CompileError, Ended
from rten_aot.files import check_writable, new_file
from rten_aot.format import read_model
from rten_aot.format.graph import Dim, Model
from rten_aot.importer import ImportedModel, import_model
from rten_aot.options import Emit, Libc, Weights, default_output
from rten_aot.passes.pipeline import optimise
from rten_aot.records import load_choices
from rten_aot.targets import get_machines, packing_machine
from rten_aot.targets.base import Machine
from rten_aot.targets.common.choices import Choice, Decisions

# TVM calls back; what is raised then comes out as a RuntimeError unless TVM knows its name.
for _kind in (KeyboardInterrupt, MemoryError, Ended):
    tvm_ffi.register_error(_kind.__name__, _kind)

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
    check_weights(weights, opt_level, machines[0])
    note = explain or ignore_note

    def stage(name: str) -> None:
        (progress or ignore_progress)(name, time.perf_counter() - begin)

    if emit == "header":
        return _write(out, c_header(symbol_prefix))
    if len(machines) > 1:
        check_several(target, emit, tuned=db is not None or bool(choices))
    if db is not None:
        choices = load_choices(Path(db), machines[0], warn or _warn)
    if choices:
        check_level(opt_level)
    stage("reading")
    parsed = model if isinstance(model, Model) else read_model(model)
    stage("importing")
    imported = import_model(parsed, shapes=shapes, dims=dims)
    stage("optimising")
    packing = packing_machine(machines)
    halves = weights == "fp16"
    mod = optimise(imported.module(), packing, opt_level, evaluator(), note, choices, halves=halves)
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
        code, decisions = schedule(
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
    return [Level(c, m, partial(interface, model, imported, m, c, d, shared)) for m, c, d in made]


def _formatted(take: Callable[[str], None], form: str) -> Callable[[str], None]:
    """``take``, which gets texts inside ``form``."""
    return lambda text: take(form.format(text))


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
