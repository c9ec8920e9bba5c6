"""Host programs whose buffers share no memory, and whether those of a plan could share theirs."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from tvm import tirx

from rten_aot.codegen.program import (
    Allocate,
    Copy,
    HandOut,
    If,
    Keep,
    Kept,
    KernelCall,
    Loop,
    Planned,
    Program,
    Step,
    Storage,
    Weight,
)


def apart(program: Program) -> Program:
    """The program with every planned buffer, and a copy of every weight, allocated by itself."""
    steps: list[Step] = []
    for buffer in program.buffers:
        buffer.dynamic = True
        steps.append(Allocate(buffer))
    copies: dict[int, Planned] = {}
    for offset, array in program.weights:
        size = tirx.IntImm("int64", array.nbytes)
        # An empty constant lies where the next one does.
        copies[offset] = Planned(size, 0, 0, dynamic=True)
    for offset, copy in copies.items():
        steps += [Allocate(copy), Copy(copy, Weight(offset), copy.size)]

    def moved(storage: Storage) -> Storage:
        return copies[storage.offset] if isinstance(storage, Weight) else storage

    steps += [_changed(step, moved) for step in program.steps]
    return dataclasses.replace(program, steps=tuple(steps), buffers=[])


def _changed(value: Any, change: Callable[[Storage], Storage]) -> Any:
    """A step, or a field of one, with other storages."""
    if isinstance(value, Storage):
        return change(value)
    if isinstance(value, tuple):
        return tuple(_changed(v, change) for v in value)
    if not isinstance(value, Step):
        return value
    return dataclasses.replace(value, **{n: _changed(v, change) for n, v in _fields(value)})


def _fields(step: Step) -> list[tuple[str, Any]]:
    return [(f.name, getattr(step, f.name)) for f in dataclasses.fields(step)]


def check_lifetimes(program: Program) -> None:
    """Fail if the plan gives a buffer's memory to another one while the first is in use."""
    uses = _Uses(program)
    buffers = sorted((b for b in program.buffers if b in uses.steps), key=lambda b: b.last)
    ends = [b.last for b in buffers]
    latest = list(accumulate((uses.span(b)[1] for b in buffers), max))
    for buffer in buffers:
        earlier = bisect_left(ends, buffer.first)
        first = uses.span(buffer)[0]
        assert not earlier or latest[earlier - 1] < first, (
            f"{uses.names[first]} (step {first}) uses a buffer whose memory may be that of "
            f"one in use until {uses.names[latest[earlier - 1]]} (step {latest[earlier - 1]})"
        )


class _Uses:
    """The steps that use each planned buffer, numbered in the order in which they stand."""

    def __init__(self, program: Program) -> None:
        self.names: list[str] = []
        self.steps: dict[Planned, list[int]] = {}
        self._loops: list[tuple[int, int]] = []
        self._kept: dict[int, list[Storage]] = {}
        self._handed_out: list[Storage] = []
        self._walk(program.steps)
        self._enter("the end", self._handed_out)

    def span(self, buffer: Planned) -> tuple[int, int]:
        """The first and the last step between which the buffer must be left alone."""
        steps = self.steps[buffer]
        first, last = steps[0], steps[-1]
        for begin, end in self._loops:
            inside = [begin < step < end for step in steps]
            # What comes into a loop or leaves it is in use in all of its iterations.
            if any(inside) and not all(inside):
                first, last = min(first, begin), max(last, end)
        return first, last

    def _walk(self, steps: Sequence[Step]) -> None:
        for step in steps:
            name = step.name if isinstance(step, KernelCall) else type(step).__name__
            own = [s for _, v in _fields(step) for s in (v if isinstance(v, tuple) else (v,))]
            begin = self._enter(name, own)
            match step:
                case If():
                    self._walk(step.then)
                    self._walk(step.otherwise)
                case Loop():
                    self._walk(step.body)
                    self._loops.append((begin, self._enter(name, own)))
                case Keep():
                    self._kept.setdefault(step.slot, []).append(step.storage)
                case HandOut():
                    self._handed_out.append(step.storage)

    def _enter(self, name: str, operands: Sequence[object]) -> int:
        """The number of a step that uses those of the operands that are storages."""
        self.names.append(name)
        for operand in operands:
            if isinstance(operand, Storage):
                self._use(operand)
        return len(self.names) - 1

    def _use(self, storage: Storage) -> None:
        root = storage.root() if isinstance(storage, Planned) else storage
        if isinstance(root, Planned):
            self.steps.setdefault(root, []).append(len(self.names) - 1)
        elif isinstance(root, Kept):
            for kept in self._kept[root.slot]:
                self._use(kept)
