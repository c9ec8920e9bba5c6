"""What is refused before the work: options that have no meaning together."""

from __future__ import annotations

from rten_aot.errors import CompileError
from rten_aot.options import WEIGHTS, Emit
from rten_aot.targets.base import Machine
from rten_aot.targets.cuda.target import Gpu


def check_several(target: str, emit: Emit, *, tuned: bool) -> None:
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


def check_level(level: int) -> None:
    """Refuse tuning records where there is nothing to choose."""
    if level < 3:
        raise CompileError(
            f"tuning records are of use at -O3 only, not at -O{level}",
            hint="compile without them, or at -O3",
        )


def check_weights(weights: str, level: int, machine: Machine) -> None:
    """Refuse a way to store weights that is unknown, or not for this level or machine."""
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
