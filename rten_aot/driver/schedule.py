"""From Relax to scheduled code for one machine, also to compute constants with."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax

from rten_aot.codegen.build import Code, Level, make_code, make_library
from rten_aot.codegen.entry import Interface
from rten_aot.codegen.program import Kernel, SizeCheck, SourceFunction
from rten_aot.diagnostics import Note, ignore_note
from rten_aot.driver.facts import facts_of
from rten_aot.importer import ImportedFunction, TensorSpec
from rten_aot.passes.apply_schedules import apply_schedules
from rten_aot.passes.base import is_relax
from rten_aot.passes.fold_constants import Evaluate
from rten_aot.passes.pipeline import lower
from rten_aot.runtime import ModelRunError, load
from rten_aot.targets import get_machine, work
from rten_aot.targets.base import Machine
from rten_aot.targets.common.choices import Decisions
from rten_aot.targets.cuda.target import Gpu


def schedule(
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


def evaluator() -> Evaluate:
    """Runs modules without inputs, for constant folding, on the machine that compiles.

    The code is for any CPU of its architecture: what this one has besides, such as fused
    multiplication and addition, would round sums otherwise, and be seen in the constants.
    """
    host = get_machine("llvm")

    def evaluate(mod: tvm.IRModule) -> list[npt.NDArray[np.generic]] | None:
        code, _ = schedule(lower(mod, fused=False), {}, host, ignore_note, lambda _name: None)
        names = [f"output_{i}" for i in range(len(code.program.output_types))]
        outputs = [
            TensorSpec(n, str(ty.dtype), tuple(int(d.value) for d in ty.shape.values))
            for n, ty in zip(names, code.program.output_types, strict=True)
        ]
        facts = facts_of((), outputs, host, code, 0)
        interface = Interface([], names, [], {}, {}, host.name, host.features, facts)
        with tempfile.TemporaryDirectory(prefix="rten-aot-fold-") as folder:
            library = Path(folder, "constants.so")
            make_library([Level(code, host, lambda _size, _images: interface)], library)
            with load(library, num_threads=1) as model:
                try:
                    return list(model())
                except ModelRunError:
                    return None

    return evaluate
