"""Writes the CUDA kernels for one kernel of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import tirx

from rten_aot.targets.common.choices import Decisions
from rten_aot.targets.common.context import Context
from rten_aot.targets.common.expr import constant_int
from rten_aot.targets.common.loops import is_noop, seq
from rten_aot.targets.common.opaque import schedule_opaque
from rten_aot.targets.common.schedule import deep_recursion
from rten_aot.targets.common.stages import Stage, parse
from rten_aot.targets.common.steps import Step, common_rows, plan
from rten_aot.targets.cuda.kernel import Launch
from rten_aot.targets.cuda.loops import schedule_loops
from rten_aot.targets.cuda.pointwise import pointwise
from rten_aot.targets.cuda.product import matrix_product
from rten_aot.targets.cuda.rows import reduction, rows
from rten_aot.targets.cuda.target import Gpu


@dataclass(frozen=True, eq=False)
class DeviceKernel:
    """A kernel of the model as kernels of the GPU, one after the other."""

    function: tirx.PrimFunc
    """Its parameters, scratch buffers among them; it does nothing itself."""
    launches: tuple[Launch, ...]


def schedule_device(
    func: tirx.PrimFunc,
    machine: Gpu,
    note: Callable[[str], None],
    decided: Callable[[Decisions], None] = lambda _decisions: None,
) -> DeviceKernel | None:
    """The kernel for the GPU, or None if it is one for the CPU.

    ``note`` and ``decided`` are as for ``targets.schedule``.
    """
    with deep_recursion():
        kernel = parse(func)
        if kernel is None:
            return _loops(func, note)
        ctx = Context(kernel, machine, note)

        def anchor(stage: Stage) -> tuple[Launch, ...] | None:
            return matrix_product(ctx, stage)

        launches = _emit(ctx, plan(ctx, anchor))
        if ctx.decisions is not None:
            decided(ctx.decisions)
        return DeviceKernel(ctx.function(seq()), tuple(launches))


def _loops(func: tirx.PrimFunc, note: Callable[[str], None]) -> DeviceKernel | None:
    """A kernel that is loops already."""
    written = schedule_opaque(func)
    if is_noop(written.body):
        return DeviceKernel(written, ())
    made = schedule_loops(written)
    if made is None:
        note("runs on the CPU: its loops depend on each other")
        return None
    note("loops taken as they are")
    return DeviceKernel(written, (made,))


def _emit(ctx: Context, steps: Sequence[Step | tuple[Launch, ...]]) -> list[Launch]:
    nests = [s for s in steps if isinstance(s, Step)]
    if len(nests) == len(steps) and len(nests) > 1:
        common = common_rows(ctx, nests, least=1)
        if common:
            return [rows(ctx, nests, common)]
    return [made for s in steps for made in (_step(ctx, s) if isinstance(s, Step) else s)]


def _step(ctx: Context, step: Step) -> tuple[Launch, ...]:
    if any(constant_int(a.extent) == 0 for a in step.stages[0].spatial):
        return ()
    return (_launch(ctx, step),)


def _launch(ctx: Context, step: Step) -> Launch:
    if step.epilogue is not None:
        return reduction(ctx, step.stages[0], step.epilogue)
    return pointwise(ctx, step.stages, step.storages)
