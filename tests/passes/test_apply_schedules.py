"""ApplySchedules: each kernel once, in the order of the first calls, under a C name."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax, tirx

from rten_aot.passes import apply_schedules as under_test
from rten_aot.passes.apply_schedules import apply_schedules
from rten_aot.passes.pipeline import lower
from rten_aot.targets import get_machine
from rten_aot.targets.base import Machine
from tests.passes.modules import Body, module, tensor

MACHINE = Machine("test", "x86_64-unknown-linux-gnu", "x86-64")


def scheduled(mod: tvm.IRModule) -> dict[str, under_test.Scheduled]:
    return apply_schedules(mod, MACHINE, lambda _line: None, lambda _done, _total: None)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tirx.PrimFunc]:
    """The functions that are scheduled, which come back with two scratch parameters claimed."""
    functions: list[tirx.PrimFunc] = []

    def schedule(
        function: tirx.PrimFunc, machine: Machine, note: object, decided: object
    ) -> tirx.PrimFunc:
        assert machine is MACHINE
        assert callable(note)
        note("hello")
        functions.append(function)
        return function.with_attr("rten.scratch", 2)

    monkeypatch.setattr(under_test, "schedule", schedule)
    return functions


def two_of_a_kind(b: Body, x: relax.Var, y: relax.Var) -> list[relax.Var]:
    return [b.call("exp", x), b.call("abs", y), b.call("exp", y)]


def test_order_names_and_scratch(seen: list[tirx.PrimFunc]) -> None:
    found = scheduled(lower(module(two_of_a_kind, tensor("x", 2), tensor("y", 3)), fused=False))
    assert [s.name for s in found.values()] == ["rten_k0_exp", "rten_k1_abs", "rten_k2_exp1"]
    assert {s.scratch for s in found.values()} == {2}
    assert len(seen) == 3


def test_equal_kernels_are_scheduled_once(seen: list[tirx.PrimFunc]) -> None:
    mod = lower(module(two_of_a_kind, tensor("x", 2), tensor("y", 3)), fused=False)
    mod["abs"] = mod["exp1"]
    found = scheduled(mod)
    assert [s.name for s in found.values()] == ["rten_k0_exp", "rten_k1_abs", "rten_k1_abs"]
    assert len(seen) == 2


def test_progress_and_notes(seen: list[tirx.PrimFunc]) -> None:
    lines: list[str] = []
    steps: list[tuple[int, int]] = []
    mod = lower(module(two_of_a_kind, tensor("x", 2), tensor("y", 3)), fused=False)
    apply_schedules(mod, MACHINE, lines.append, lambda *step: steps.append(step))
    assert lines == ["exp: hello", "abs: hello", "exp1: hello"]
    assert steps == [(0, 3), (1, 3), (2, 3)]


def test_kernels_of_branches_come_after_those_of_main(seen: list[tirx.PrimFunc]) -> None:
    branch = module(lambda b, x: b.call("log", x), tensor("x", 2))["main"]
    mod = lower(module(lambda b, x: b.call("exp", x), tensor("x", 2), branch=branch), fused=False)
    assert [s.name for s in scheduled(mod).values()] == ["rten_k0_exp", "rten_k1_log"]


def test_scratch_is_appended_by_the_real_schedules() -> None:
    """Parameters are kept in their order; what comes after them is work memory."""
    mod = lower(module(lambda b, x: b.call("softmax", x, axis=1), tensor("x", 4, 100)), fused=True)
    machine = get_machine("x86-64-v3")
    (found,) = apply_schedules(mod, machine, lambda _l: None, lambda _d, _t: None).values()
    assert len(found.function.params) == 2 + found.scratch
