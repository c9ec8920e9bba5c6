"""From Relax functions to steps: where values lie, how long, and what is copied."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.sym import Analyzer

from rten_aot.codegen.program import (
    Allocate,
    Copy,
    HandOut,
    If,
    Input,
    Keep,
    Kept,
    KernelCall,
    Output,
    Planned,
    Publish,
    Recall,
    Require,
    SizeCheck,
    Weight,
)
from rten_aot.dialect.control import cond
from rten_aot.dialect.registry import call
from rten_aot.errors import InternalError
from tests.codegen.programs import kernel_calls, program_of
from tests.passes.modules import Body, const, module, random, shape, tensor


def size(buffer: Planned) -> int:
    assert isinstance(buffer.size, tirx.IntImm)
    return int(buffer.size.value)


def test_a_chain() -> None:
    program = program_of(
        module(lambda b, x: b.call("exp", b.call("abs", b.call("relu", x))), tensor("x", 3, 5))
    )
    first, second, third = kernel_calls(program.steps)
    assert [first.name, second.name, third.name] == ["k_relu", "k_abs", "k_exp"]
    assert isinstance(first.pointers[0], Input)
    a, b = first.pointers[1], second.pointers[1]
    assert second.pointers[0] is a
    assert third.pointers[0] is b
    # The last result is computed where the graph output lies.
    last = third.pointers[1]
    assert isinstance(last, Planned)
    assert isinstance(last.home, Output)
    assert program.buffers == [a, b]
    assert [size(buffer) for buffer in program.buffers] == [60, 60]
    assert program.is_static
    assert [b.index for b in program.buffers] == [0, 1]


def test_lifetimes_reach_from_the_maker_to_the_last_user() -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        y = b.call("relu", x)
        z = b.call("abs", y)
        return b.call("add", b.call("exp", z), y)

    y, z, w = program_of(module(build, tensor("x", 4))).buffers
    assert (z.first, z.last) == (y.first + 1, y.first + 2)
    assert w.first == z.last
    assert y.last == w.last == w.first + 1


def test_a_reshape_is_a_view() -> None:
    program = program_of(
        module(lambda b, x: b.call("exp", b.reshape(b.call("relu", x), 6)), tensor("x", 2, 3))
    )
    first, second = kernel_calls(program.steps)
    assert second.pointers[0] is first.pointers[1]
    assert len(program.steps) == 2


def test_a_view_as_the_result_lies_in_the_output() -> None:
    program = program_of(module(lambda b, x: b.reshape(b.call("relu", x), 6), tensor("x", 2, 3)))
    (only,) = kernel_calls(program.steps)
    result = only.pointers[1]
    assert isinstance(result, Planned)
    assert isinstance(result.home, Output)
    assert program.buffers == []


def test_results_that_are_inputs_or_constants_are_copied() -> None:
    program = program_of(
        module(lambda b, x: [x, const([1, 2]), b.reshape(x, 3, 2)], tensor("x", 2, 3))
    )
    sources = []
    for index, step in enumerate(program.steps):
        assert isinstance(step, Copy)
        assert isinstance(step.target, Output)
        assert step.target.index == index
        sources.append(type(step.source))
    assert sources == [Input, Weight, Input]


def test_one_value_as_two_results() -> None:
    def build(b: Body, x: relax.Var) -> list[relax.Expr]:
        y = b.call("relu", x)
        return [y, y, b.reshape(y, 6)]

    program = program_of(module(build, tensor("x", 2, 3)))
    call_, *copies = program.steps
    assert isinstance(call_, KernelCall)
    assert [type(step) for step in copies] == [Copy, Copy]
    assert {step.target.index for step in copies} == {1, 2}  # type: ignore[union-attr]


def test_weights_are_aligned_and_small_equal_ones_shared() -> None:
    big = random(1100)

    def build(b: Body, x: relax.Var) -> list[relax.Expr]:
        y = b.call("add", b.call("add", x, const([1.0])), const([1.0]))
        return [y, const([1, 0, 0, 0], "uint8"), const(big)]

    program = program_of(module(build, tensor("x", 3)))
    offsets = [offset for offset, _ in program.weights]
    assert offsets == [0, 64, 128]
    assert program.weight_bytes == 128 + 4416
    np.testing.assert_array_equal(program.weights[2][1], big)
    assert program.weights[1][1].dtype == np.uint8


def test_groups_of_results() -> None:
    def build(b: Body, x: relax.Var) -> relax.Expr:
        best = b.emit(call("top_k", x, shape(2), axis=0, largest=True))
        return b.emit(relax.TupleGetItem(best, 1))

    program = program_of(module(build, tensor("x", 5)))
    (only,) = kernel_calls(program.steps)
    values, indices = only.pointers[1:]
    assert isinstance(indices, Planned)
    assert isinstance(indices.home, Output)
    assert values in program.buffers


def test_scratch_lives_for_one_call() -> None:
    program = program_of(module(lambda b, x: b.call("relu", x), tensor("x", 8)), scratch=2)
    (step,) = kernel_calls(program.steps)
    assert list(step.pointers[2:]) == program.buffers
    for scratch in program.buffers:
        assert scratch.first == scratch.last
        assert size(scratch) == 100


def test_symbolic_sizes() -> None:
    n, m = (tirx.Var(name, "int64") for name in "nm")

    def build(b: Body, x: relax.Var, y: relax.Var) -> relax.Var:
        return b.call("exp", b.call("concat", x, y, axis=0))

    program = program_of(module(build, tensor("x", n, 3), tensor("y", m, 3)))
    assert [v.name for v in program.sizes] == ["n", "m"]
    assert program.slots == 2
    assert not program.is_static
    joined, last = kernel_calls(program.steps)
    assert {str(s) for s in joined.sizes} >= {"n", "m"}
    assert Analyzer().can_prove_equal(program.buffers[0].size, (n + m) * 12)
    # What overflow is checked by: the factors are not multiplied yet.
    assert len(program.buffers[0].factors) == 3
    assert len(last.sizes) >= 1


def test_checks_on_input_sizes_come_before_the_first_step() -> None:
    n, m = (tirx.Var(name, "int64") for name in "nm")
    mod = module(lambda b, x, y: b.call("add", x, y), tensor("x", n), tensor("y", m))
    check = SizeCheck(tirx.EQ(n, m), 7, "n and m differ")
    program = program_of(mod, {"main": [check]})
    assert program.checks == [check]
    assert program.early_checks == 1
    assert not any(isinstance(step, Require) for step in program.steps)


def test_a_check_on_an_unknown_size_is_a_fault() -> None:
    other = tirx.Var("other", "int64")
    mod = module(lambda b, x: b.call("relu", x), tensor("x", 2))
    with pytest.raises(InternalError, match="sizes of a check are never defined: why"):
        program_of(mod, {"main": [SizeCheck(other > 0, 0, "why")]})


def chosen(
    then: relax.Function, otherwise: relax.Function, *results: relax.TensorType
) -> tvm.IRModule:
    """An If over x (3) with condition c, and the exponential of its results."""

    def build(b: Body, x: relax.Var, c: relax.Var) -> list[relax.Expr]:
        kinds = relax.TupleType(list(results))
        values = b.emit(cond(c, [x], shape(), kinds, then="then", otherwise="otherwise"))
        return [b.call("exp", b.emit(relax.TupleGetItem(values, i))) for i in range(len(results))]

    flag = tensor("c", dtype="int32")
    return module(build, tensor("x", 3), flag, then=then, otherwise=otherwise)


def branch(build: object) -> relax.Function:
    return module(build, tensor("x", 3), relax.Var("s", relax.ShapeType([])))["main"]  # type: ignore[arg-type]


def test_a_branch_computes_into_the_result_of_the_if() -> None:
    program = program_of(
        chosen(
            branch(lambda b, x, _s: b.call("relu", x)),
            branch(lambda b, x, _s: x),
            relax.TensorType([3], "float32"),
        )
    )
    decision, last = program.steps
    assert isinstance(decision, If)
    assert isinstance(last, KernelCall)
    assert isinstance(decision.condition, Input)
    assert decision.dtype == "int32"
    (computed,) = decision.then
    assert isinstance(computed, KernelCall)
    target = computed.pointers[1]
    assert isinstance(target, Planned)
    assert target.home is last.pointers[0]
    (copied,) = decision.otherwise
    assert isinstance(copied, Copy)
    assert copied.target is last.pointers[0]
    assert isinstance(copied.source, Input)


def test_a_branch_that_gives_one_value_twice() -> None:
    def twice(b: Body, x: relax.Var, _s: relax.Var) -> list[relax.Expr]:
        y = b.call("relu", x)
        return [y, y]

    kind = relax.TensorType([3], "float32")
    program = program_of(
        chosen(branch(twice), branch(lambda b, x, _s: [x, b.call("abs", x)]), kind, kind)
    )
    decision = program.steps[0]
    assert isinstance(decision, If)
    assert [type(step) for step in decision.then] == [KernelCall, Copy]
    assert [type(step) for step in decision.otherwise] == [KernelCall, Copy]


def test_the_result_of_an_if_outlives_both_branches() -> None:
    program = program_of(
        chosen(
            branch(lambda b, x, _s: b.call("relu", b.call("abs", x))),
            branch(lambda b, x, _s: b.call("log", b.call("sqrt", x))),
            relax.TensorType([3], "float32"),
        )
    )
    last = program.steps[-1]
    assert isinstance(last, KernelCall)
    result = last.pointers[0]
    assert isinstance(result, Planned)
    for buffer in program.buffers:
        assert result.first <= buffer.first
        assert buffer.last <= result.last


def test_sizes_that_differ_between_branches() -> None:
    n = tirx.Var("n", "int64")
    program = program_of(
        chosen(
            branch(lambda b, x, _s: b.call("concat", x, x, axis=0)),
            branch(lambda b, x, _s: x),
            relax.TensorType([n], "float32"),
        )
    )
    decision, recall, allocate, call_, publish, hand_out = program.steps
    assert isinstance(decision, If)
    for steps, length in ((decision.then, 6), (decision.otherwise, 3)):
        published, keep = steps[-2:]
        assert isinstance(published, Publish)
        assert int(published.value.value) == length
        assert isinstance(keep, Keep)
    assert isinstance(recall, Recall)
    assert recall.var.same_as(n)
    assert isinstance(allocate, Allocate)
    assert isinstance(call_, KernelCall)
    assert isinstance(call_.pointers[0], Kept)
    assert isinstance(publish, Publish)
    assert isinstance(hand_out, HandOut)
    assert program.dynamic_dims == {0: [publish.slot]}
    assert call_.pointers[1] not in program.buffers
    # The size, the address, the output's size.
    assert program.slots == 3


def test_a_check_on_a_size_that_a_branch_defines() -> None:
    n = tirx.Var("n", "int64")
    mod = chosen(
        branch(lambda b, x, _s: b.call("concat", x, x, axis=0)),
        branch(lambda b, x, _s: x),
        relax.TensorType([n], "float32"),
    )
    program = program_of(mod, {"main": [SizeCheck(n > 3, 5, "too short")]})
    assert program.early_checks == 0
    (require,) = (step for step in program.steps if isinstance(step, Require))
    assert program.checks[require.check].message == "too short"
    assert program.steps.index(require) == 2
