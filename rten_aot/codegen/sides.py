"""Programs for a GPU: what the CPU does in them, and the copies that this takes.

Every storage of the program lies on the GPU and is up to date there after each step. What kernels
of the CPU, conditions and measured sizes need is copied to memory beside the CPU that mirrors it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from tvm import tirx

from rten_aot.codegen.program import (
    Append,
    Copy,
    Download,
    HostMemory,
    HostWeight,
    If,
    Kept,
    KernelCall,
    Loop,
    Measure,
    Planned,
    Program,
    Reserve,
    Step,
    Storage,
    Upload,
    Weight,
)
from rten_aot.codegen.sizes import free_sizes


def divided(program: Program) -> Program:
    """The program with the copies between GPU and CPU."""
    sides = _Sides(program)
    steps = sides.steps(program.steps)
    return dataclasses.replace(program, steps=(*map(Reserve, sides.early), *steps))


class _Sides:
    def __init__(self, program: Program) -> None:
        self._known = set(program.sizes)
        self._mirrors: dict[Storage, HostMemory] = {}
        self._current: set[Storage] = set()
        """Storages whose mirrors hold the same as they do."""
        self.early: list[HostMemory] = []
        """Mirrors that are allocated before the first step."""

    def steps(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        return tuple(new for step in steps for new in self._step(step))

    def _step(self, step: Step) -> list[Step]:
        match step:
            case KernelCall():
                assert step.operands is not None, step.name
                if step.operands.on_host:
                    return self._on_host(step)
                self._changed(step.pointers[step.operands.inputs :])
                return [step]
            case Copy(target) | Append(target):
                self._changed([target])
                return [step]
            case Measure(sizes, storage):
                fetch, mirror = self._fetched(storage, _bytes("int64", len(sizes)))
                return [*fetch, Measure(sizes, mirror)]
            case If():
                fetch, mirror = self._fetched(step.condition, _bytes(step.dtype))
                arms = [self._block(arm) for arm in (step.then, step.otherwise)]
                return [*fetch, dataclasses.replace(
                    step, condition=mirror, then=arms[0], otherwise=arms[1]
                )]  # fmt: skip
            case Loop():
                return self._loop(step)
        return [step]

    def _on_host(self, call: KernelCall) -> list[Step]:
        operands = call.operands
        assert operands is not None
        before: list[Step] = []
        after: list[Step] = []
        pointers: list[Storage] = []
        outputs = len(call.pointers) - operands.scratch
        for index, (storage, size) in enumerate(zip(call.pointers, operands.bytes, strict=True)):
            if isinstance(storage, Weight):
                pointers.append(HostWeight(storage.offset))
            elif index < operands.inputs:
                fetch, mirror = self._fetched(storage, size)
                before += fetch
                pointers.append(mirror)
            else:
                reserve, mirror = self._mirror(storage, size)
                before += reserve
                pointers.append(mirror)
                if index < outputs:
                    after.append(Upload(storage, mirror, size))
        self._changed(call.pointers[operands.inputs :])
        self._current |= {_root(s) for s in call.pointers[operands.inputs : outputs]}
        return [*before, dataclasses.replace(call, pointers=tuple(pointers), read_whole=()), *after]

    def _loop(self, loop: Loop) -> list[Step]:
        fetch, condition = self._fetched(loop.condition, _bytes(loop.dtype))
        reserve, number = self._mirror(loop.number, _bytes("int32"))
        body = self._block(loop.body)
        send = Upload(loop.number, number, _bytes("int32"))
        again = Download(condition, loop.condition, _bytes(loop.dtype))
        whole = dataclasses.replace(
            loop, condition=condition, number=number, body=(send, *body, again)
        )
        return [*fetch, *reserve, whole]

    def _block(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """Steps that may be left out or repeated: before and after them nothing is known."""
        mirrors = dict(self._mirrors)
        self._current.clear()
        inner = self.steps(steps)
        self._current.clear()
        kept = {id(m) for m in self.early}
        self._mirrors = mirrors | {s: m for s, m in self._mirrors.items() if id(m) in kept}
        return inner

    def _fetched(self, storage: Storage, size: tirx.Expr) -> tuple[list[Step], HostMemory]:
        """The mirror, and what it takes to have it hold what the storage does."""
        steps, mirror = self._mirror(storage, size)
        if _root(storage) not in self._current:
            # All of it, for uses of the storage that are larger than this one.
            steps.append(Download(mirror, storage, mirror.size))
            if not isinstance(_root(storage), Kept):
                self._current.add(_root(storage))
        return steps, mirror

    def _mirror(self, storage: Storage, size: tirx.Expr) -> tuple[list[Step], HostMemory]:
        root = _root(storage)
        if root in self._mirrors:
            return [], self._mirrors[root]
        whole = root.size if isinstance(root, Planned) else size
        mirror = self._mirrors[root] = HostMemory(whole)
        if free_sizes(whole) <= self._known:
            self.early.append(mirror)
            return [], mirror
        return [Reserve(mirror)], mirror

    def _changed(self, storages: Sequence[Storage]) -> None:
        self._current -= {_root(s) for s in storages}


def _root(storage: Storage) -> Storage:
    return storage.root() if isinstance(storage, Planned) else storage


def _bytes(dtype: str, count: int = 1) -> tirx.Expr:
    return tirx.IntImm("int64", np.dtype(dtype).itemsize * count)
