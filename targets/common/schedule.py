"""Chooses the loops for one kernel: anchor rules first, then generic ones, which never refuse."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from tvm import tirx
from tvm.tirx import Stmt

from rten_aot.targets.base import Machine
from rten_aot.targets.common.context import Context
from rten_aot.targets.common.opaque import schedule_opaque
from rten_aot.targets.common.stages import Stage, parse
from rten_aot.targets.common.steps import emit, plan

AnchorRule: TypeAlias = Callable[[Context, Stage], Stmt | None]

_RECURSION = 20_000
"""Fused chains of operators make deep expressions, which are walked recursively."""


def schedule(func: tirx.PrimFunc, machine: Machine, note: Callable[[str], None]) -> tirx.PrimFunc:
    """The kernel as loops.

    The result has the parameters of ``func`` followed by scratch buffers, whose number its
    attribute ``rten.scratch`` gives; ``note`` takes lines that say what was chosen.
    """
    with _deep_recursion():
        kernel = parse(func)
        if kernel is None:
            note("loops taken as they are")
            return schedule_opaque(func)
        ctx = Context(kernel, machine, note)

        def anchor(stage: Stage) -> Stmt | None:
            rule = anchor_rules().get(stage.anchor) if stage.anchor is not None else None
            return rule(ctx, stage) if rule is not None else None

        return ctx.function(emit(ctx, plan(ctx, anchor)))


@functools.cache
def anchor_rules() -> dict[str, AnchorRule]:
    """The rules for stages with an annotation ``rten.anchor``, by its value."""
    rules = {}
    for name in ("conv2d", "depthwise", "gemm"):
        try:
            module = importlib.import_module(f".{name}", __package__)
        except ModuleNotFoundError:
            continue
        rules[name] = getattr(module, f"schedule_{name}")
    return rules


@contextmanager
def _deep_recursion() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
