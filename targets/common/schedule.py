"""Chooses the loops for one kernel: anchor rules first, then the generic ones, which never refuse."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tvm import tirx

from ..base import Machine
from .context import Context
from .elementwise import schedule_spatial
from .loops import seq
from .stages import parse

_RECURSION = 20_000
"""Fused chains of operators make deep expressions, which are walked recursively."""


def schedule(func: tirx.PrimFunc, machine: Machine, note: Callable[[str], None]) -> tirx.PrimFunc:
    """The kernel as loops.

    The result has the parameters of ``func`` followed by scratch buffers, whose number its attribute
    ``rten.scratch`` gives; ``note`` takes lines that say what was chosen.
    """
    with _deep_recursion():
        kernel = parse(func)
        if kernel is None:
            raise NotImplementedError
        ctx = Context(kernel, machine, note)
        parts = []
        for stage in kernel.stages:
            if stage.buffer in kernel.outputs:
                parts.append(schedule_spatial(ctx, [stage]))
        return ctx.function(seq(*parts))


@contextmanager
def _deep_recursion() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
