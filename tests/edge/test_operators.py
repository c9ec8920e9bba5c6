"""The tables of operators on machines that this one is not."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import rten_aot
from tests.edge.emulation import Emulated, EmulatorFaultError, Wasm, each_machine, quick_on
from tests.memory.tables import SUITES, one_of_each
from tests.support.cases import (
    Array,
    Case,
    Mode,
    feeds,
    outcomes,
    rten_dtype,
    write_cases,
)
from tests.support.tolerances import assert_matches


def check(cases: Sequence[Case], mode: Mode, machine: Emulated | Wasm) -> None:
    """Run all cases in as few models as possible, and fail with a list of those that are wrong."""
    machine.require()

    def run(batch: Sequence[Case], mode: Mode) -> list[list[list[Array]]]:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_cases(batch, mode, folder / "model.rten")
            library = rten_aot.compile(
                folder / "model.rten", folder / f"libmodel{machine.suffix}", target=machine.target
            )
            given = {k: x.astype(rten_dtype(x)) for k, x in feeds(batch, mode).items()}
            results = iter(machine.run(library, given))
        return [[[next(results) for _ in range(case.outputs)]] for case in batch]

    found = outcomes(cases, mode, run)
    faults = []
    for case in cases:
        match found[case.id]:
            case EmulatorFaultError() as err:
                print(f"{case.id}: {err}")
            case Exception() as err:
                faults.append(f"{case.id}: {err}")
            case [results]:
                faults += _differences(case, results, machine)
    assert not faults, "\n".join(faults)


def _differences(case: Case, results: list[Array], machine: Emulated | Wasm) -> list[str]:
    wanted = case.want()
    try:
        if machine.flushes:
            wanted = [_flushed_alike(*r) for r in zip(results, wanted, _flushed(case), strict=True)]
        for got, want in zip(results, wanted, strict=True):
            assert_matches(got, want, case.tolerance)
    except AssertionError as err:
        return [f"{case.id}: {err}"]
    return []


def _flushed(case: Case) -> list[Array]:
    """What is expected where subnormal numbers count as zero."""
    inputs = [None if x is None else _flush(x) for x in case.inputs]
    return [_flush(y) for y in dataclasses.replace(case, inputs=inputs).want()]


def _flush(x: Array) -> Array:
    if x.dtype.kind != "f":
        return x
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(0, x), x).astype(x.dtype)


def _flushed_alike(got: Array, want: Array, flushed: Array) -> Array:
    """``want``, but for elements that are as if subnormal numbers were zero: each may be so."""
    if want.shape != flushed.shape:  # as of NonZero
        return flushed if got.shape == flushed.shape else want
    if got.shape != want.shape:
        return want
    nan = np.isnan(got) & np.isnan(flushed) if got.dtype.kind == "f" else False
    return np.where((got == flushed) | nan, flushed, want).astype(want.dtype)


@quick_on("cortex-a53", "armv7", "riscv64", "wasm32")
def test_one_case_of_each_operator(machine: Emulated | Wasm) -> None:
    check(one_of_each("static"), "static", machine)


@pytest.mark.emulated
@each_machine
@pytest.mark.parametrize("mode", ["static", "dynamic", "constant"])
@pytest.mark.parametrize("family", SUITES)
def test_all_cases(family: str, mode: Mode, machine: Emulated | Wasm) -> None:
    check(SUITES[family].cases(mode), mode, machine)
