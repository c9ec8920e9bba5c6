"""Expressions are told apart by what they are, not by their hashes."""

from __future__ import annotations

from tvm import te, tirx

from rten_aot.targets.common.expr import identity
from rten_aot.targets.common.stages import parse
from rten_aot.targets.common.values import Interner


def test_minus_one_and_minus_two_hash_alike_and_stay_apart() -> None:
    one, two = tirx.const(-1, "int64"), tirx.const(-2, "int64")
    assert hash(one) == hash(two)
    assert identity(one) != identity(two)
    interner = Interner()
    assert interner.number(one) != interner.number(two)


def test_a_stage_keeps_its_constants() -> None:
    x = te.placeholder((tirx.const(8, "int64"),), "int32", name="x")
    y = te.compute(
        x.shape,
        lambda i: tirx.Select(x(i) > tirx.const(-1, "int32"), x(i), tirx.const(-2, "int32")),
    )
    kernel = parse(te.create_prim_func([x, y]))
    assert kernel is not None
    text = str(kernel.stages[0].value)
    assert "-1" in text
    assert "-2" in text
