"""FoldConstants: what is computed at compile time, and what stays for the run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from rten_aot.dialect.control import cond
from rten_aot.dialect.registry import call
from rten_aot.passes.fold_constants import SMALL_BYTES, MoveConstants, fold_constants
from rten_aot.passes.pipeline import remove_unused
from tests.passes.modules import (
    Array,
    Body,
    assert_same,
    const,
    is_same,
    module,
    ops,
    random,
    run,
    shape,
    tensor,
)

A, B = random(2, 3), random(2, 3, seed=1)


def fold(mod: tvm.IRModule) -> tvm.IRModule:
    return remove_unused(fold_constants(mod, run))


def no_evaluation(_mod: tvm.IRModule) -> list[Array]:
    raise AssertionError("something was to be evaluated")


def check(before: Callable[..., object], after: Callable[..., object]) -> None:
    assert_same(fold(module(before, tensor("x", 2, 3))), module(after, tensor("x", 2, 3)))


def test_an_operand_made_of_constants() -> None:
    check(
        lambda b, x: b.call("add", x, b.call("multiply", const(A), const(B))),
        lambda b, x: b.call("add", x, const(A * B)),
    )


def test_chains_fold_as_one() -> None:
    def before(b: Body, x: relax.Var) -> relax.Var:
        y = b.call("abs", b.call("negative", b.call("add", const(A), const(B))))
        return b.call("add", x, y)

    check(before, lambda b, x: b.call("add", x, const(np.abs(A + B))))


def test_a_result_that_is_constant() -> None:
    check(
        lambda b, x: [b.call("relu", x), b.call("subtract", const(A), const(B))],
        lambda b, x: [b.call("relu", x), const(A - B)],
    )


def test_a_value_inside_a_chain_that_others_use_too() -> None:
    def before(b: Body, x: relax.Var) -> list[relax.Expr]:
        inner = b.call("negative", const(A))
        return [b.call("add", x, inner), b.call("add", x, b.call("abs", inner))]

    check(
        before,
        lambda b, x: [b.call("add", x, const(-A)), b.call("add", x, const(np.abs(A)))],
    )


def test_groups_of_results() -> None:
    data = np.array([3, 5, 5, 1], np.float32)

    def before(b: Body, x: relax.Var) -> list[relax.Expr]:
        best = b.emit(call("top_k", const(data), shape(2), axis=0, largest=True))
        return [x, b.emit(relax.TupleGetItem(best, 0)), b.emit(relax.TupleGetItem(best, 1))]

    check(before, lambda b, x: [x, const([5, 5]), const([1, 2], "int32")])


def test_computed_nans_are_alike() -> None:
    """Processors disagree on their sign."""
    negative = np.copysign(np.array([np.nan, np.nan], np.float32), np.float32(-1))
    mod = module(lambda b, x: [x, b.call("negative", const(A))], tensor("x", 2, 3))
    found: list[tvm.ir.GenericConst] = []
    relax.analysis.post_order_visit(
        fold_constants(mod, lambda _mod: [negative])["main"],
        lambda e: found.append(e) if isinstance(e, tvm.ir.GenericConst) else None,
    )
    wanted = np.array([np.nan, np.nan], np.float32).tobytes()
    assert wanted in [constant.value.numpy().tobytes() for constant in found]


def test_types_are_kept() -> None:
    def before(b: Body, x: relax.Var) -> list[relax.Expr]:
        return [x, b.call("add", const([1, 2], "int32"), const([3], "int32"))]

    check(before, lambda b, x: [x, const([4, 5], "int32")])


def test_reshapes_and_transposes_need_no_evaluation() -> None:
    def before(b: Body, x: relax.Var) -> list[relax.Expr]:
        moved = b.call("transpose", b.reshape(const(A), 3, 2), axes=[1, 0])
        return [x, b.reshape(moved, 6)]

    mod = module(before, tensor("x", 2, 3))
    got = remove_unused(fold_constants(mod, no_evaluation))
    assert_same(
        got, module(lambda b, x: [x, const(A.reshape(3, 2).T.reshape(6))], tensor("x", 2, 3))
    )
    assert ops(remove_unused(MoveConstants().run(mod))) == []


def test_a_reshape_to_a_size_known_at_run_time_only() -> None:
    n = tirx.Var("n", "int64")
    mod = module(lambda b, x: [x, b.reshape(const(np.zeros(6)), n, 3)], tensor("x", n, 3))
    assert ops(fold_constants(mod, no_evaluation)) == ["reshape"]


def test_nothing_to_fold() -> None:
    mod = module(lambda b, x: b.call("add", x, const(A)), tensor("x", 2, 3))
    assert is_same(fold_constants(mod, no_evaluation), mod)


def test_values_much_larger_than_what_they_are_made_of_stay() -> None:
    count = SMALL_BYTES // 4
    mod = module(lambda b, x: [x, b.call("expand", const([1.0]), shape(count + 1))], tensor("x", 1))
    assert is_same(fold_constants(mod, no_evaluation), mod)
    small = module(lambda b, x: [x, b.call("expand", const([1.0]), shape(count))], tensor("x", 1))
    assert ops(fold(small)) == []


def test_generated_values_of_symbolic_size_stay() -> None:
    n = tirx.Var("n", "int64")
    mod = module(
        lambda b, x: b.call("add", x, b.call("full", shape(n), value=1.0, dtype="float32")),
        tensor("x", n),
    )
    assert is_same(fold_constants(mod, no_evaluation), mod)


def test_branches_are_folded_and_conditions_stay() -> None:
    branch = module(lambda b, x: b.call("add", x, b.call("negative", const(A))), tensor("x", 2, 3))[
        "main"
    ]

    def build(b: Body, x: relax.Var) -> relax.Expr:
        results = relax.TupleType([relax.TensorType([2, 3], "float32")])
        flag = const(1, "int32")
        chosen = b.emit(cond(flag, [x], shape(), results, then="branch", otherwise="branch"))
        return b.emit(relax.TupleGetItem(chosen, 0))

    got = fold(module(build, tensor("x", 2, 3), branch=branch))
    assert ops(got) == ["cond"]
    assert ops(got, "branch") == ["add"]


def test_what_fails_is_left_for_the_run() -> None:
    def build(b: Body, x: relax.Var) -> list[relax.Expr]:
        bad = b.call("abs", b.call("negative", const(A)))
        return [x, b.call("exp", const(B)), bad, b.call("negative", const(B)), x]

    def evaluate(mod: tvm.IRModule) -> list[Array] | None:
        return None if "abs" in ops(remove_unused(mod)) else run(mod)

    got = remove_unused(fold_constants(module(build, tensor("x", 2, 3)), evaluate))
    assert ops(got) == ["negative", "abs"]


@pytest.mark.parametrize("value", [0.0, -0.0, np.nan, np.inf, 1e-45])
def test_special_values_survive(value: float) -> None:
    data = np.array([value], np.float32)
    mod = module(lambda b, x: [x, b.call("negative", const(data))], tensor("x", 1))
    _, got = run(fold(mod), np.zeros(1, np.float32))
    np.testing.assert_array_equal(got, -data)
    if not np.isnan(value):
        np.testing.assert_array_equal(np.signbit(got), ~np.signbit(data))
