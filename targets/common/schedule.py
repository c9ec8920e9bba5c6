"""Chooses the loops for one kernel: anchor rules first, then generic ones, which never refuse."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from tvm import tirx
from tvm.tirx import Stmt

from rten_aot.targets.base import Machine
from rten_aot.targets.common.attention import schedule_attention
from rten_aot.targets.common.choices import Decisions
from rten_aot.targets.common.context import Context
from rten_aot.targets.common.conv2d import schedule_conv2d
from rten_aot.targets.common.depthwise import schedule_depthwise
from rten_aot.targets.common.gemm import schedule_gemm
from rten_aot.targets.common.halves import with_conversions
from rten_aot.targets.common.opaque import schedule_opaque
from rten_aot.targets.common.stages import Stage, parse
from rten_aot.targets.common.steps import emit, plan
from rten_aot.targets.common.winograd import schedule_winograd

AnchorRule: TypeAlias = Callable[[Context, Stage], Stmt | None]

_RECURSION = 20_000
"""Fused chains of operators make deep expressions, which are walked recursively."""


RULES: Mapping[str, AnchorRule] = {
    "attention": schedule_attention,
    "conv2d": schedule_conv2d,
    "depthwise": schedule_depthwise,
    "gemm": schedule_gemm,
    "winograd": schedule_winograd,
}
"""The rules for stages with an annotation ``rten.anchor``, by its value."""


def schedule(
    func: tirx.PrimFunc,
    machine: Machine,
    note: Callable[[str], None],
    decided: Callable[[Decisions], None] = lambda _decisions: None,
) -> tirx.PrimFunc:
    """The kernel as loops.

    The result has the parameters of ``func`` followed by scratch buffers, whose number its
    attribute ``rten.scratch`` gives; ``note`` takes lines that say what was chosen, and ``decided``
    what was chosen for a convolution or matrix product.
    """
    with deep_recursion():
        kernel = parse(func)
        if kernel is None:
            note("loops taken as they are")
            return with_conversions(schedule_opaque(func), machine)
        ctx = Context(kernel, machine, note)

        def anchor(stage: Stage) -> Stmt | None:
            rule = RULES.get(stage.anchor) if stage.anchor is not None else None
            return None if rule is None else rule(ctx, stage)

        scheduled = ctx.function(emit(ctx, plan(ctx, anchor)))
        if ctx.decisions is not None:
            decided(ctx.decisions)
        return with_conversions(scheduled, machine)


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Room for walks over the deep expressions of fused operators."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
