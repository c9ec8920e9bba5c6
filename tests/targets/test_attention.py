"""Attention: tiles of rows whose scores stay in the cache, fixed and symbolic lengths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tvm import relax, tirx

from rten_aot.dialect.attention import step
from rten_aot.dialect.registry import call
from rten_aot.targets.base import Machine
from tests.targets.anchors import (
    AVX2,
    NEON,
    PRODUCT_MACHINES,
    Array,
    Kernel,
    compiled,
    fused,
    sym,
    tensor_type,
)

Sizes = Sequence[int | tirx.Expr]
machines = pytest.mark.parametrize("machine", PRODUCT_MACHINES.values(), ids=PRODUCT_MACHINES)
IDENTITY = [0, 1, 2, 3]


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(sum(shape) + seed).standard_normal(shape, dtype="float32")


def kernel_of(q: Sizes, k: Sizes, v: Sizes, mask: Sizes, machine: Machine) -> Kernel:
    """Attention with an added mask, and a relu of its result."""
    types = [tensor_type(s) for s in (q, k, v, mask)]
    steps = [step("add", [None, 0], {})]

    def build(b: relax.BlockBuilder, *inputs: relax.Expr) -> relax.Expr:
        axes = {f"{x}_axes": IDENTITY for x in ("q", "k", "v", "out")}
        return b.emit(call("relu", b.emit(call("attention", *inputs, steps=steps, **axes))))

    return compiled(fused(types, build), machine)


def check(kernel: Kernel, batch: int, rows: int, keys: int, depth: int, channels: int) -> None:
    q, k = random(batch, 2, rows, depth), random(batch, 2, depth, keys)
    v, mask = random(batch, 2, keys, channels, seed=1), random(batch, 1, 1, keys, seed=2) * 9
    scores = q.astype(np.float64) @ k + mask
    raised = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    with np.errstate(invalid="ignore"):
        weights = raised / raised.sum(-1, keepdims=True)
    result = kernel(q, k, v, mask)
    np.testing.assert_allclose(result, np.maximum(weights @ v, 0), rtol=1e-5, atol=1e-5)


@machines
@pytest.mark.parametrize(
    "sizes",
    [
        (1, 12, 64, 16, 32),
        (2, 13, 37, 5, 20),
        (1, 4, 1, 8, 3),
        (1, 5, 130, 33, 70),
        (1, 1, 200, 16, 16),
        (3, 7, 0, 4, 4),
    ],
    ids=str,
)
def test_fixed_lengths(sizes: tuple[int, ...], machine: Machine) -> None:
    batch, rows, keys, depth, channels = sizes
    shapes = [(batch, 2, rows, depth), (batch, 2, depth, keys), (batch, 2, keys, channels)]
    check(kernel_of(*shapes, (batch, 1, 1, keys), machine), *sizes)


@machines
def test_symbolic_lengths(machine: Machine) -> None:
    batch, rows, keys = sym("b"), sym("m"), sym("k")
    kernel = kernel_of(
        [batch, 2, rows, 16],
        [batch, 2, 16, keys],
        [batch, 2, keys, 24],
        [batch, 1, 1, keys],
        machine,
    )
    for sizes in [
        (1, 1, 1),
        (2, 3, 17),
        (1, 13, 64),
        (1, 29, 7),
        (3, 8, 100),
        (1, 0, 5),
        (2, 4, 0),
    ]:
        check(kernel, *sizes, 16, 24)


def test_no_array_of_all_scores() -> None:
    shape = (1, 2, 1024, 32)
    kernel = kernel_of(shape, (1, 2, 32, 1024), shape, (1, 1, 1, 1024), AVX2)
    buffers = [p for p in kernel.function.params if isinstance(p.ty, tirx.BufferType)]
    sizes = [np.prod([int(e.value) for e in p.ty.shape]) for p in buffers[5:]]
    assert len(sizes) == kernel.scratch
    assert max(sizes) <= 2 * 1024 * 1024 // 4
    assert kernel.notes == ["width 16 (least padding), rows 6 (as many as fit the registers)"]


def test_it_compiles_for_arm() -> None:
    kernel = kernel_of((1, 2, 9, 16), (1, 2, 16, 40), (1, 2, 40, 16), (1, 1, 1, 40), NEON)
    assert kernel.assembly_uses("fmla")
