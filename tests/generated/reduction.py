"""Products of matrices, reductions and normalisations: what sums along axes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.generated.generator import SIZES, Generator
from tests.ops import test_matmul, test_norm, test_reduce
from tests.support.cases import Case


def matmul(g: Generator, name: str) -> Case:
    m, k, n = (g.pick(*SIZES, 100, 130) for _ in range(3))
    kind = g.random.random()
    if kind < 0.7:
        batch = [g.pick(1, 2, 3), g.pick(1, 4)][: g.random.randrange(3)]
        other = [g.pick(1, b) for b in batch] if g.chance(0.5) else []
        operands = [g.array(*batch, m, k), g.array(*other, k, n)]
        return Case(name, "MatMul", operands, np.matmul, tolerance="approximate")
    swap_a, swap_b = g.chance(0.5), g.chance(0.5)
    return Case(
        name,
        "Gemm",
        [
            g.array(*((k, m) if swap_a else (m, k))),
            g.array(*((n, k) if swap_b else (k, n))),
            g.array(*g.pick((n,), (m, 1), (m, n), (1,))),
        ],
        test_matmul.gemm(1.5, 0.5, swap_a, swap_b),
        {"alpha": 1.5, "beta": 0.5, "transA": int(swap_a), "transB": int(swap_b)},
        tolerance="approximate",
    )


def reduction(g: Generator, name: str) -> Case:
    shape = g.sizes()
    keep = g.chance(0.5)
    if g.chance(0.3):
        op, axis = g.pick("ArgMax", "ArgMin"), g.random.randrange(len(shape))
        x = g.array(*shape).round(1)  # with equal elements
        return test_reduce.position(op, name, x, axis, keep_dims=keep)
    axes = sorted(g.random.sample(range(len(shape)), g.random.randrange(1, len(shape) + 1)))
    if g.chance(0.15):
        shape[axes[0]] = 0
    op = "ReduceSum" if 0 in shape else g.pick(*test_reduce.REDUCTIONS)
    x = g.array(*shape)
    if op == "ReduceProd":  # stays near 1
        x = (1 + x * 0.1).astype(np.float32)
    return test_reduce.reduction(name, op, x, axes, keep_dims=keep, tolerance="approximate")


def normalisation(g: Generator, name: str) -> Case:
    shape = g.sizes()
    axis = g.random.randrange(len(shape))
    kind = g.random.random()
    if kind < 0.6:
        op, function = g.pick(("Softmax", test_norm.softmax), ("LogSoftmax", test_norm.log_softmax))
        x = g.array(*shape) * 5
        expected = lambda v: function(v, axis)  # noqa: E731  (a case keeps it)
        return Case(name, op, [x], expected, {"axis": axis}, tolerance="approximate")
    if kind < 0.8 or len(shape) < 3:
        operands = [g.array(*shape), g.array(*shape[axis:]), g.array(*shape[axis:])]
        expected = test_norm.layer_norm(axis)
        attrs = {"axis": axis}
        return Case(name, "LayerNormalization", operands, expected, attrs, tolerance="approximate")
    operands = [g.array(*shape), g.array(shape[1]), g.array(shape[1])]
    return Case(
        name,
        "InstanceNormalization",
        operands,
        test_norm.instance_norm,
        {"epsilon": 1e-3},
        tolerance="approximate",
    )


FAMILIES: dict[str, Callable[[Generator, str], Case]] = {
    "matmul": matmul,
    "reduction": reduction,
    "normalisation": normalisation,
}
