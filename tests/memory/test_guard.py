"""That the guard notices what it is there for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import tirx

from rten_aot.codegen.linearise import _Linearizer
from rten_aot.codegen.program import (
    HandOut,
    If,
    Input,
    Keep,
    Kept,
    KernelCall,
    Loop,
    Output,
    Planned,
    Program,
    Step,
    Storage,
)
from tests.memory.faults import replace_address, shift
from tests.ops import test_control_flow
from tests.support.apart import check_lifetimes
from tests.support.cases import Case, outcomes
from tests.support.guard import MemoryFaultError, guarded

X = np.arange(12, dtype=np.float32).reshape(3, 4)
SOFTMAX = Case("the-softmax", "Softmax", [X], lambda x: x, {"axis": 1})
RELU = Case("the-relu", "Relu", [X], lambda x: x)


@pytest.mark.parametrize("offset", [-4, 4])
@pytest.mark.parametrize("kind", [Input, Output, Planned])
def test_one_element_beside_a_buffer(
    kind: type[Storage], offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shift(monkeypatch, "softmax", kind, offset)
    with guarded():
        results = outcomes([RELU, SOFTMAX], "dynamic")
    fault = results["the-softmax"]
    assert isinstance(fault, MemoryFaultError)
    assert "ended with SIGSEGV" in str(fault)
    np.testing.assert_array_equal(results["the-relu"][0][0], X)  # type: ignore[index]


def test_an_input_is_not_to_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_address(monkeypatch, Output, Input(0))
    operands = [np.ones((1, 3, 4), np.float32), np.ones(3, np.float32), np.ones(3, np.float32)]
    case = Case("the-norm", "InstanceNormalization", operands, lambda *xs: xs[0])
    with guarded():
        assert isinstance(outcomes([case], "static")["the-norm"], MemoryFaultError)


def test_what_a_branch_kept_must_live_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch = _Linearizer._touch

    def forgetful(self: _Linearizer, storage: Storage, now: int) -> None:
        if not isinstance(storage, Kept):
            touch(self, storage, now)

    monkeypatch.setattr(_Linearizer, "_touch", forgetful)
    with guarded(), pytest.raises(AssertionError, match="uses a buffer whose memory may be that"):
        test_control_flow.test_results_of_sizes_that_differ_keep_their_memory(tmp_path)


def program(*steps: Step, buffers: list[Planned]) -> Program:
    return Program(steps, buffers, [], 0, [], [], [], 0, [], 0)


def call(*storages: Storage) -> KernelCall:
    return KernelCall("kernel", storages, ())


def planned(first: int, last: int) -> Planned:
    return Planned(tirx.IntImm("int64", 4), first, last)


def test_lifetimes_in_order() -> None:
    a, b = planned(0, 1), planned(2, 3)
    check_lifetimes(program(call(a), call(a), call(b), buffers=[a, b]))
    with pytest.raises(AssertionError, match=r"kernel \(step 1\) .* until kernel \(step 2\)"):
        check_lifetimes(program(call(a), call(b), call(a), buffers=[a, b]))
    with pytest.raises(AssertionError, match=r"kernel \(step 1\) .* until kernel \(step 1\)"):
        check_lifetimes(program(call(a), call(a, b), buffers=[a, b]))


def test_lifetimes_in_branches() -> None:
    a, b, condition = planned(0, 1), planned(2, 3), Input(0)
    kept = Kept(0, [a])
    arms = (call(a), Keep(0, a)), (call(b),)
    check_lifetimes(program(If(condition, "int32", *arms), buffers=[a, b]))
    with pytest.raises(AssertionError, match=r"kernel \(step 3\) .* until kernel \(step 5\)"):
        check_lifetimes(program(If(condition, "int32", *arms), call(b), call(kept), buffers=[a, b]))
    with pytest.raises(AssertionError, match=r"kernel \(step 1\) .* until the end \(step 2\)"):
        check_lifetimes(program(HandOut(0, a), call(b), buffers=[a, b]))


def test_lifetimes_in_loops() -> None:
    a, b, number = planned(0, 1), planned(2, 3), Output(0)

    def loop(*steps: Step) -> Loop:
        return Loop(0, tirx.IntImm("int64", 2), Input(0), "int32", number, steps)

    check_lifetimes(program(loop(call(a), call(b)), buffers=[a, b]))
    # The next iteration needs a again.
    with pytest.raises(AssertionError, match=r"kernel \(step 3\) .* until Loop \(step 4\)"):
        check_lifetimes(program(call(a), loop(call(a), call(b)), buffers=[a, b]))
    # Each iteration but the first overwrites b.
    with pytest.raises(AssertionError, match=r"Loop \(step 0\) .* until kernel \(step 1\)"):
        check_lifetimes(program(loop(call(a), call(b)), call(b), buffers=[a, b]))
