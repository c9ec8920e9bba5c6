"""Which nodes kernels come from, through all passes that replace and merge calls."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm
import tvm_ffi
from tvm import relax, tirx

from rten_aot.dialect.functions import bindings
from rten_aot.dialect.origins import nodes_of, with_nodes
from rten_aot.dialect.registry import call
from rten_aot.passes.base import relax_functions
from rten_aot.passes.channels_last import channels_last
from rten_aot.passes.fold_scales import fold_scales
from rten_aot.passes.pack_weights import pack_weights
from rten_aot.passes.pipeline import lower, remove_unused
from tests.passes.modules import Body, const, module, random, shape, tensor
from tests.targets.anchors import AVX2

CONV = {"strides": [1, 1], "dilations": [1, 1], "groups": 1}


def node(b: Body, number: int, name: str, *operands: relax.Expr, **attrs: object) -> relax.Var:
    """Bind a call of ``rten.<name>`` that comes from a node of the model."""
    return b.emit(with_nodes(call(name, *operands, **attrs), [number]))  # type: ignore[arg-type]


def origins(build: Callable[..., object], *params: relax.Var, level: int = 2) -> list[list[int]]:
    """The nodes of each kernel, after the passes of an optimisation level but packing."""
    mod = module(build, *params)
    if level >= 1:
        mod = fold_scales(mod)
    if level >= 3:
        mod = channels_last(mod, lambda _: None)
        mod = pack_weights(mod, AVX2, lambda _: None)
    return kernel_nodes(lower(remove_unused(mod), fused=level >= 2))


def kernel_nodes(mod: tvm.IRModule) -> list[list[int]]:
    return [
        list(nodes_of(value))
        for _, function in relax_functions(mod)
        for _, value in bindings(function)
        if isinstance(value, tvm.ir.Call) and value.op.name == "relax.call_tir"
    ]


def test_a_call_collects_nodes() -> None:
    x = tensor("x", 2)
    bare = call("relu", x)
    assert nodes_of(bare) == nodes_of(x) == nodes_of(None) == ()
    named = with_nodes(with_nodes(bare, [12, 3]), [3, 4])
    assert nodes_of(named) == (3, 4, 12)
    assert with_nodes(named, [4]) is named
    assert with_nodes(x, [4]) is x


def test_nodes_do_not_tell_calls_apart() -> None:
    bare = call("relu", tensor("x", 2))
    assert tvm_ffi.structural_equal(bare, with_nodes(bare, [1]))


@pytest.mark.parametrize(("level", "expected"), [(0, [[3], [5], [7]]), (2, [[3, 5, 7]])])
def test_a_group_comes_from_all_its_operators(level: int, expected: list[list[int]]) -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        y = node(b, 3, "conv", x, const(random(4, 3, 2, 2)), shape(0, 0, 0, 0), **CONV)
        y = node(b, 5, "add", y, const(random(4, 1, 1)))
        return node(b, 7, "relu", y)

    assert origins(build, tensor("x", 1, 3, 6, 5), level=level) == expected


def test_equal_groups_have_nodes_of_their_own() -> None:
    """FuseOps merges their functions, FuseTIR their kernels."""
    weights = [const(random(8, 8, seed=seed)) for seed in (1, 2, 1)]

    def build(b: Body, x: relax.Var) -> list[relax.Var]:
        found = []
        for number, weight in enumerate(weights):
            y = node(b, 2 * number, "matmul", x, weight)
            found.append(node(b, 2 * number + 1, "relu", y))
        return found

    # The weights of the first and the last are equal, yet not the same constant.
    assert sorted(origins(build, tensor("x", 8, 8))) == [[0, 1], [2, 3], [4, 5]]


def test_the_same_computed_twice() -> None:
    def build(b: Body, x: relax.Var) -> list[relax.Var]:
        return [node(b, n, "relu", x) for n in (1, 2)]

    assert sorted(origins(build, tensor("x", 8, 8))) == [[1], [2]]


def test_operators_with_several_results() -> None:
    def build(b: Body, x: relax.Var) -> list[relax.Var]:
        both = node(b, 1, "top_k", x, shape(2), axis=1, largest=True)
        values, places = (b.emit(relax.TupleGetItem(both, i)) for i in (0, 1))
        return [node(b, 2, "relu", values), node(b, 3, "cast", places, dtype="float32")]

    assert origins(build, tensor("x", 4, 4)) == [[1], [2], [3]]


def test_folded_scales() -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        y = node(b, 1, "conv", x, const(random(4, 3, 2, 2)), shape(0, 0, 0, 0), **CONV)
        y = node(b, 2, "add", y, const(random(4, 1, 1)))
        y = node(b, 3, "multiply", y, const(random(4, 1, 1, seed=1)))
        y = node(b, 4, "add", y, const(random(4, 1, 1, seed=2)))
        return y

    x = tensor("x", 1, 3, 6, 5)
    assert origins(build, x, level=1) == [[1, 3], [2, 3, 4]]
    assert origins(build, x) == [[1, 2, 3, 4]]


def test_transposes_come_from_what_needs_them() -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        y = node(b, 1, "conv", x, const(random(4, 3, 2, 2)), shape(0, 0, 0, 0), **CONV)
        return node(b, 2, "relu", y)

    got = origins(build, tensor("x", 1, 3, 6, 5), level=3)
    assert got == [[1], [1, 2], [2]]


def test_unknown_nodes() -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        return b.call("softmax", node(b, 1, "matmul", x, const(random(8, 8))), axis=1)

    assert origins(build, tensor("x", 8, 8)) == [[1], []]


def test_symbolic_sizes() -> None:
    n = tirx.Var("n", "int64")

    def build(b: Body, x: relax.Var) -> relax.Var:
        y = node(b, 1, "matmul", x, const(random(8, 8)))
        y = node(b, 2, "relu", y)
        wide = b.reshape(y, n * 2, 4)
        return node(b, 3, "softmax", wide, axis=1)

    assert origins(build, tensor("x", n, 8)) == [[1, 2], [3]]
