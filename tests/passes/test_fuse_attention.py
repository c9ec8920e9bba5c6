"""FuseAttention: what becomes one operator, and what must not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from rten_aot.dialect.origins import nodes_of, with_nodes
from rten_aot.dialect.registry import attrs_of, call
from rten_aot.passes.fuse_attention import fuse_attention
from rten_aot.passes.pipeline import remove_unused
from tests.passes.modules import (
    Array,
    Body,
    assert_equivalent,
    calls,
    const,
    module,
    ops,
    random,
    tensor,
)

Q, K, V = (2, 3, 5, 8), (2, 3, 8, 7), (2, 3, 7, 4)
ROWS_FIRST = [0, 2, 1, 3]


def params(*shapes: Sequence[int]) -> list[relax.Var]:
    return [tensor(name, *s) for name, s in zip("qkvm", shapes, strict=False)]


def fused(
    build: Callable[..., object], *shapes: Sequence[int], notes: list[str] | None = None
) -> tvm.IRModule:
    note = (lambda _line: None) if notes is None else notes.append
    return remove_unused(fuse_attention(module(build, *params(*shapes)), note))


def check(build: Callable[..., object], *shapes: Sequence[int], left: Sequence[str] = ()) -> None:
    """Fail unless it becomes one attention, and computes the same."""
    got = fused(build, *shapes)
    assert ops(got) == ["attention", *left]
    inputs: list[Array] = [random(*s, seed=i) for i, s in enumerate(shapes)]
    assert_equivalent(got, module(build, *params(*shapes)), *inputs, tolerance=1e-6)


def kept(build: Callable[..., object], *shapes: Sequence[int]) -> None:
    """Fail unless it stays as it is."""
    assert "attention" not in ops(fused(build, *shapes))


def test_products_with_a_softmax_between() -> None:
    def build(b: Body, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Var:
        return b.call("matmul", b.call("softmax", b.call("matmul", q, k), axis=3), v)

    check(build, Q, K, V)
    notes: list[str] = []
    fused(build, Q, K, V, notes=notes)
    assert notes == ["attention in one kernel: scores of 2 x 3 x 5 x 7"]


@pytest.mark.parametrize("mask", [(7,), (1, 1, 1, 7), (2, 1, 5, 7), (2, 3, 5, 7), (1, 1, 5, 1)])
def test_factors_and_masks(mask: tuple[int, ...]) -> None:
    def build(b: Body, q: relax.Var, k: relax.Var, v: relax.Var, m: relax.Var) -> relax.Var:
        scores = b.call("divide", b.call("matmul", q, k), const(2.5), node=None)
        scores = b.call("add", m, scores)
        return b.call("matmul", b.call("softmax", scores, axis=3), v)

    check(build, Q, K, V, mask)


def test_any_elementwise_operator_that_keeps_the_shape() -> None:
    def build(b: Body, q: relax.Var, k: relax.Var, v: relax.Var, m: relax.Var) -> relax.Var:
        scores = b.call("tanh", b.call("matmul", q, k))
        scores = b.call("where", b.call("cast", m, dtype="int32"), scores, const(-9.0))
        return b.call("matmul", b.call("softmax", scores, axis=3), v)

    got = fused(build, Q, K, V, (1, 1, 5, 7))
    assert ops(got) == ["cast", "attention"]
    inputs = [random(*s, seed=i) for i, s in enumerate((Q, K, V, (1, 1, 5, 7)))]
    whole = module(build, *params(Q, K, V, (1, 1, 5, 7)))
    assert_equivalent(got, whole, *inputs, tolerance=1e-6)


def test_transposes_become_attributes() -> None:
    def build(b: Body, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Var:
        q = b.call("transpose", q, axes=ROWS_FIRST)
        k = b.call("transpose", k, axes=[0, 2, 3, 1])
        v = b.call("transpose", v, axes=ROWS_FIRST)
        weights = b.call("softmax", b.call("matmul", q, k), axis=3)
        return b.call("transpose", b.call("matmul", weights, v), axes=ROWS_FIRST)

    check(build, (2, 5, 3, 8), (2, 7, 3, 8), (2, 7, 3, 4))


def test_an_uneven_transpose_of_the_result() -> None:
    def build(b: Body, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Var:
        weights = b.call("softmax", b.call("matmul", q, k), axis=3)
        first = b.call("transpose", b.call("matmul", weights, v), axes=[1, 2, 3, 0])
        return b.call("transpose", first, axes=[1, 2, 3, 0])

    check(build, Q, K, V)


def test_products_of_transposed_factors() -> None:
    def build(b: Body, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Var:
        scores = b.call("matmul", q, b.call("transpose", k, axes=ROWS_FIRST), transpose_b=True)
        return b.call("matmul", b.call("softmax", scores, axis=3), v, transpose_b=True)

    check(build, Q, (2, 7, 3, 8), (2, 3, 4, 7))


def test_a_transpose_with_other_uses_is_read_through() -> None:
    def build(b: Body, q: relax.Var, k: relax.Var, v: relax.Var) -> list[relax.Var]:
        turned = b.call("transpose", v, axes=ROWS_FIRST)
        weights = b.call("softmax", b.call("matmul", q, k), axis=3)
        return [b.call("matmul", weights, turned), turned]

    got = fused(build, Q, K, (2, 7, 3, 4))
    assert sorted(ops(got)) == ["attention", "transpose"]


def test_three_axes_and_symbolic_lengths() -> None:
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")

    def build(b: Body, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Var:
        return b.call("matmul", b.call("softmax", b.call("matmul", q, k), axis=2), v)

    inputs = [tensor("q", 2, n, 8), tensor("k", 2, 8, m), tensor("v", 2, m, 8)]
    assert ops(fuse_attention(module(build, *inputs), lambda _line: None))[-1] == "attention"
    others = [tensor("q", 2, n, 8), tensor("k", 2, 8, m), tensor("v", 2, n, 8)]
    assert "attention" not in ops(fuse_attention(module(build, *others), lambda _line: None))


def test_nodes_of_all_members_are_kept() -> None:
    def build(b: Body, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Var:
        scores = b.emit(with_nodes(call("matmul", q, k), [4]))
        scores = b.emit(with_nodes(call("multiply", scores, const(0.5)), [5]))
        weights = b.emit(with_nodes(call("softmax", scores, axis=3), [6]))
        sums = b.emit(with_nodes(call("matmul", weights, v), [7]))
        return b.emit(with_nodes(call("transpose", sums, axes=ROWS_FIRST), [8]))

    (attention,) = calls(fused(build, Q, K, V), "attention")
    assert nodes_of(attention) == (4, 5, 6, 7, 8)
    assert attrs_of(attention)["out_axes"] == ROWS_FIRST


def test_constant_keys_are_left_to_be_packed() -> None:
    def build(b: Body, q: relax.Var, v: relax.Var) -> relax.Var:
        weights = b.call("softmax", b.call("matmul", q, const(random(*K))), axis=3)
        return b.call("matmul", weights, v)

    got = fuse_attention(module(build, tensor("q", *Q), tensor("v", *V)), lambda _line: None)
    assert "attention" not in ops(got)


@pytest.mark.parametrize("axis", [1, 2])
def test_other_axes_of_a_softmax(axis: int) -> None:
    kept(
        lambda b, q, k, v: b.call(
            "matmul", b.call("softmax", b.call("matmul", q, k), axis=axis), v
        ),
        Q,
        K,
        V,
    )


@pytest.mark.parametrize("which", ["product", "scaled", "weights"])
def test_values_that_are_used_elsewhere(which: str) -> None:
    def build(b: Body, q: relax.Var, k: relax.Var, v: relax.Var) -> list[relax.Var]:
        product = b.call("matmul", q, k)
        scaled = b.call("multiply", product, const(0.5))
        weights = b.call("softmax", scaled, axis=3)
        others = {"product": product, "scaled": scaled, "weights": weights}
        return [b.call("matmul", weights, v), others[which]]

    kept(build, Q, K, V)


def test_scores_that_are_added_to_themselves() -> None:
    def build(b: Body, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Var:
        scores = b.call("matmul", q, k)
        return b.call("matmul", b.call("softmax", b.call("add", scores, scores), axis=3), v)

    kept(build, Q, K, V)


@pytest.mark.parametrize(
    ("shapes", "why"),
    [
        ([(2, 3, 5, 8), (1, 3, 8, 7), (2, 3, 7, 4)], "keys for all batches"),
        ([(2, 3, 5, 8), (2, 3, 8, 7), (3, 7, 4)], "values without a batch"),
        ([(5, 8), (8, 7), (7, 4)], "no batch"),
        ([(2, 3, 3, 8), (2, 3, 8, 7), (2, 3, 7, 4)], "few rows"),
        ([(2, 3, 5, 0), (2, 3, 0, 7), (2, 3, 7, 4)], "no depth"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_shapes_that_stay_apart(shapes: Sequence[Sequence[int]], why: str) -> None:
    last = len(shapes[0]) - 1
    kept(
        lambda b, q, k, v: b.call(
            "matmul", b.call("softmax", b.call("matmul", q, k), axis=last), v
        ),
        *shapes,
    )


def test_a_mask_that_enlarges_the_scores() -> None:
    def build(b: Body, q: relax.Var, k: relax.Var, v: relax.Var, m: relax.Var) -> relax.Var:
        scores = b.call("add", b.call("matmul", q, k), m)
        return b.call("matmul", b.call("softmax", scores, axis=3), v)

    kept(build, (1, 3, 5, 8), (1, 3, 8, 7), (2, 3, 7, 4), (2, 1, 1, 7))


def test_integers_stay_apart() -> None:
    def build(b: Body, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Var:
        a, c = (b.call("cast", x, dtype="int8") for x in (q, k))
        scores = b.call("cast", b.call("matmul", a, c), dtype="float32")
        return b.call("matmul", b.call("softmax", scores, axis=3), v)

    kept(build, Q, K, V)


def test_two_layers() -> None:
    def build(b: Body, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Var:
        for _ in range(2):
            weights = b.call("softmax", b.call("matmul", q, k), axis=3)
            q = b.call("matmul", weights, v)
        return q

    got = fused(build, (1, 2, 5, 8), (1, 2, 8, 7), (1, 2, 7, 8))
    assert ops(got) == ["attention", "attention"]
    inputs = [random(1, 2, 5, 8), random(1, 2, 8, 7), random(1, 2, 7, 8)]
    whole = module(build, *params((1, 2, 5, 8), (1, 2, 8, 7), (1, 2, 7, 8)))
    assert_equivalent(got, whole, *[np.asarray(x) for x in inputs], tolerance=1e-6)
