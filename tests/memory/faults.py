"""Faults to put into what is compiled, for tests to notice."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import tirx

from rten_aot.codegen import host
from rten_aot.codegen.program import KernelCall, Planned, Step, Storage


def shift(monkeypatch: pytest.MonkeyPatch, kernel: str, kind: type[Storage], offset: int) -> None:
    """Kernels of this name get addresses of one kind that are so many bytes off."""
    emitter: Any = host._MainEmitter
    address_of, steps_of = emitter._address, emitter._step
    called: list[bool] = [False]

    def step(self: object, step: Step) -> Any:
        called[0] = isinstance(step, KernelCall) and kernel in step.name
        return steps_of(self, step)

    def address(self: object, storage: Storage) -> tirx.Expr:
        found = address_of(self, storage)
        elsewhere = isinstance(storage, Planned) and storage.home is not None
        meant = called[0] and isinstance(storage, kind) and not elsewhere
        return host._at(found, offset) if meant else found

    monkeypatch.setattr(emitter, "_step", step)
    monkeypatch.setattr(emitter, "_address", address)


def replace_address(monkeypatch: pytest.MonkeyPatch, kind: type[Storage], other: Storage) -> None:
    """All memory of one kind is another."""
    emitter: Any = host._MainEmitter
    address_of = emitter._address

    def address(self: object, storage: Storage) -> tirx.Expr:
        return address_of(self, other if isinstance(storage, kind) else storage)

    monkeypatch.setattr(emitter, "_address", address)


def leave_out(monkeypatch: pytest.MonkeyPatch, kernel: str) -> None:
    """Kernels of this name are not called."""
    emitter: Any = host._MainEmitter
    steps_of = emitter._step

    def step(self: object, step: Step) -> Any:
        skipped = isinstance(step, KernelCall) and kernel in step.name
        return [] if skipped else steps_of(self, step)

    monkeypatch.setattr(emitter, "_step", step)
