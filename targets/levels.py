"""Several CPUs that one artifact is for, called its levels: which one runs what, and the packing.

A level is a machine. A CPU takes the first level whose features it has.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from rten_aot.errors import TargetError
from rten_aot.options import Libc
from rten_aot.targets.base import Machine
from rten_aot.targets.cuda.target import NAMED
from rten_aot.targets.machines import get_machine


def get_machines(target: str, libc: Libc | None = None) -> tuple[Machine, ...]:
    """The machines that ``target`` names, the best first.

    Args:
        target: what ``get_machine`` takes, where commas may join several names, as in
            ``x86-64-v3,x86-64-v4`` or ``aarch64,neoverse-n1 -mtriple=aarch64-linux-gnu``.
        libc: as for ``get_machine``.

    Raises:
        TargetError: a name is unknown, or the machines cannot share one artifact.
    """
    first, *options = target.split(maxsplit=1)[:2] or [""]
    if "," not in first:
        return (get_machine(target, libc=libc),)
    names = first.split(",")
    _check_words(target, names, options)
    machines = {name: get_machine(" ".join([name, *options]), libc=libc) for name in names}
    for pair in itertools.combinations(machines.items(), 2):
        _check_pair(target, *pair)
    # A level with all of another's features and more never has shorter vectors. Sorting is stable.
    return tuple(sorted(machines.values(), key=lambda m: (-m.vector_bits, -len(m.features))))


def packing_machine(levels: Sequence[Machine]) -> Machine:
    """The machine that weights are packed for, so that kernels of every level can read them.

    Blocks of columns suit the longest vectors, of which no level has too few: where vectors are
    shorter, a block makes several tiles.
    """
    registers = min(machine.vector_registers for machine in levels)
    return dataclasses.replace(levels[0], vector_registers=registers)


def _check_words(target: str, names: Sequence[str], options: Sequence[str]) -> None:
    if "" in names:
        raise TargetError(
            f'target "{target}": a name is missing beside a comma',
            hint="join names by commas alone: x86-64-v2,x86-64-v3",
        )
    gpus = [name for name in names if name in NAMED]
    if gpus:
        raise TargetError(
            f'target "{target}": "{gpus[0]}" is a GPU, but only CPUs can share a library',
            hint="compile once for each; -arch=sm_80,sm_90 names several GPUs",
        )
    for name in names:
        if names.count(name) > 1:
            raise TargetError(f'target "{target}": "{name}" is named twice')
    for option in ("-mcpu", "-mattr"):
        if any(word.partition("=")[0] == option for word in " ".join(options).split()):
            raise TargetError(
                f'target "{target}": {option} is of one CPU, but {len(names)} are named',
                hint=f"leave out {option}, or name one CPU",
            )


def _check_pair(target: str, one: tuple[str, Machine], other: tuple[str, Machine]) -> None:
    (name, machine), (other_name, other_machine) = one, other
    if machine.triple != other_machine.triple:
        raise TargetError(
            f'target "{target}": "{name}" is for {machine.triple}, "{other_name}" for '
            f"{other_machine.triple}; CPUs of one library must be of one architecture",
            hint="compile once for each architecture",
        )
    if machine.features == other_machine.features:
        needed = ", ".join(machine.features) or "nothing special"
        raise TargetError(
            f'target "{target}": "{name}" and "{other_name}" need the same features ({needed}), '
            "by which a level is chosen",
            hint="leave one of them out",
        )
