"""Legalize: operators become kernels; what the host program does itself stays."""

from __future__ import annotations

import numpy as np
from tvm import relax, tirx

from rten_aot.dialect.registry import call
from rten_aot.passes.legalize import legalize
from tests.passes.modules import (
    Body,
    const,
    is_same,
    module,
    ops,
    random,
    run,
    shape,
    tensor,
)


def test_operators_become_kernels_of_the_same_name() -> None:
    mod = legalize(
        module(lambda b, x: b.call("relu", b.conv(x, const(random(4, 3, 1, 1)))),
               tensor("x", 1, 3, 4, 4))
    )  # fmt: skip
    assert ops(mod) == ["conv", "relu"]
    relax.analysis.well_formed(mod)
    assert all(isinstance(mod[name], tirx.PrimFunc) for name in ("conv", "relu"))


def test_the_pattern_of_the_operator_reaches_the_kernel() -> None:
    mod = legalize(
        module(
            lambda b, x: [
                b.call("relu", x),
                b.call("transpose", x, axes=[1, 0]),
                b.call("cumsum", x, axis=0),
                b.call("reduce_sum", x, axes=[0]),
            ],
            tensor("x", 2, 3),
        )
    )
    patterns = {
        name: mod[name].attrs.get("op_pattern")
        for name in ("relu", "transpose", "cumsum", "reduce_sum")
    }
    assert patterns == {"relu": 0, "transpose": 2, "cumsum": 8, "reduce_sum": None}


def test_reshapes_stay() -> None:
    mod = module(lambda b, x: b.reshape(x, 6), tensor("x", 2, 3))
    assert is_same(legalize(mod), mod)


def test_equal_operators_share_a_kernel() -> None:
    mod = legalize(module(lambda b, x: b.call("exp", b.call("exp", x)), tensor("x", 2, 3)))
    assert ops(mod) == ["exp", "exp"]
    different = legalize(
        module(lambda b, x: [b.call("exp", x), b.call("exp", b.reshape(x, 6))], tensor("x", 2, 3))
    )
    assert len(set(ops(different))) == 3


def test_groups_of_results() -> None:
    def build(b: Body, x: relax.Var) -> list[relax.Expr]:
        best = b.emit(call("top_k", x, shape(2), axis=0, largest=False))
        return [b.emit(relax.TupleGetItem(best, i)) for i in (1, 0)]

    indices, values = run(module(build, tensor("x", 4)), np.array([3, 1, 2, 1], np.float32))
    np.testing.assert_array_equal(indices, [1, 3])
    np.testing.assert_array_equal(values, [1, 1])


def test_sizes_become_operands_of_the_kernel() -> None:
    n = tirx.Var("n", "int64")

    def build(b: Body, x: relax.Var) -> relax.Var:
        return b.call("slice", x, shape(n - 2), shape(2), axes=[0], steps=[1])

    mod = legalize(module(build, tensor("x", n)))
    relax.analysis.well_formed(mod)
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(run(module(build, tensor("x", n)), x)[0], [3, 4])
