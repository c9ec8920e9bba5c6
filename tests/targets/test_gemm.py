"""Matrix products: packed constants, shared and batched matrices, symbolic sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tvm import relax, tirx

import rten_aot.dialect.arithmetic
import rten_aot.dialect.elementwise
import rten_aot.dialect.matmul
import rten_aot.dialect.movement  # noqa: F401
from rten_aot.dialect.registry import call
from rten_aot.passes.pack_weights import pack_gemm
from rten_aot.targets.base import Machine
from rten_aot.targets.common.packing import columns
from tests.targets.anchors import (
    AVX2,
    AVX512,
    IN_ORDER,
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


def random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype="float32")


def packed_kernel(a: Sizes, n: int, machine: Machine) -> Kernel:
    """``relu(a @ w + bias)`` with a packed ``w`` of ``n`` columns."""
    width = columns(machine, n, wide=True)
    types = [tensor_type(a), tensor_type([-(-n // width), a[-1], width]), tensor_type([n])]

    def build(b: relax.BlockBuilder, x: relax.Expr, w: relax.Expr, c: relax.Expr) -> relax.Expr:
        y = b.emit(call("add", b.emit(call("gemm_packed", x, w, n=n)), c))
        return b.emit(call("relu", y))

    return compiled(fused(types, build), machine)


def check_packed(kernel: Kernel, shape: Sequence[int], n: int) -> None:
    x, w, bias = random(*shape), random(shape[-1], n), random(n)
    result = kernel(x, pack_gemm(w, columns(kernel.machine, n, wide=True)), bias)
    expected = np.maximum(x.astype(np.float64) @ w + bias, 0)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-4)


@machines
@pytest.mark.parametrize(
    ("shape", "n"),
    [
        ((49, 33), 64),
        ((1, 70), 50),
        ((7, 5), 3),
        ((13, 64), 17),
        ((2, 5, 9), 40),
        ((3, 1, 4, 31), 100),
        ((5, 0), 20),
    ],
    ids=str,
)
def test_packed(shape: tuple[int, ...], n: int, machine: Machine) -> None:
    check_packed(packed_kernel(shape, n, machine), shape, n)


@machines
@pytest.mark.parametrize("n", [48, 50])
def test_packed_with_symbolic_rows(n: int, machine: Machine) -> None:
    kernel = packed_kernel([sym("b"), sym("m"), 24], n, machine)
    for batch, rows in [(1, 1), (1, 5), (2, 3), (1, 7), (1, 11), (3, 13), (2, 48), (5, 0)]:
        check_packed(kernel, (batch, rows, 24), n)


def matmul_kernel(a: Sizes, b: Sizes, machine: Machine, *, transpose_b: bool) -> Kernel:
    """``a @ b``, then a factor for all elements."""

    def build(bb: relax.BlockBuilder, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        product = bb.emit(call("matmul", x, y, transpose_b=transpose_b))
        half = relax.const(np.array(0.5, "float32"))
        return bb.emit(call("multiply", product, half))

    return compiled(fused([tensor_type(a), tensor_type(b)], build), machine)


def check_matmul(kernel: Kernel, a: Sequence[int], b: Sequence[int], *, transpose_b: bool) -> None:
    x, y = random(*a), random(*b)
    right = np.swapaxes(y, -1, -2) if transpose_b else y
    constant = np.array(0.5, "float32")
    takes_constant = len(kernel.function.params) - kernel.scratch > 3
    result = kernel(x, y, *([constant] if takes_constant else []))
    expected = 0.5 * (x.astype(np.float64) @ right)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-4)


@machines
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((13, 7), (7, 33)),
        ((2, 3, 9, 16), (2, 3, 16, 20)),
        ((2, 3, 1, 16), (3, 16, 70)),
        ((4, 5, 8), (8, 64)),
        ((1, 5, 8), (3, 8, 9)),
        ((5, 8), (8, 1)),
        ((2, 4, 0), (2, 0, 6)),
    ],
    ids=str,
)
def test_matmul(
    a: tuple[int, ...], b: tuple[int, ...], transpose_b: bool, machine: Machine
) -> None:
    right = (*b[:-2], b[-1], b[-2]) if transpose_b else b
    kernel = matmul_kernel(a, right, machine, transpose_b=transpose_b)
    check_matmul(kernel, a, right, transpose_b=transpose_b)


@machines
@pytest.mark.parametrize("transpose_b", [False, True])
def test_symbolic_attention(transpose_b: bool, machine: Machine) -> None:
    """Scores of queries and keys, and their use: every size of a sequence is symbolic."""
    batch, rows, keys = sym("b"), sym("m"), sym("k")
    if transpose_b:
        a: Sizes = [batch, 2, rows, 16]
        b: Sizes = [batch, 2, keys, 16]
    else:
        a, b = [batch, 2, rows, keys], [batch, 2, keys, 24]
    kernel = matmul_kernel(a, b, machine, transpose_b=transpose_b)
    for n, m, k in [(1, 1, 1), (2, 5, 7), (1, 16, 32), (3, 7, 65), (1, 13, 31)]:
        if transpose_b:
            check_matmul(kernel, (n, 2, m, 16), (n, 2, k, 16), transpose_b=True)
        else:
            check_matmul(kernel, (n, 2, m, k), (n, 2, k, 24), transpose_b=False)


@pytest.mark.parametrize("machine", [AVX2, AVX512], ids=lambda m: m.name)
def test_rows_and_columns_may_be_swapped_behind_the_product(machine: Machine) -> None:
    """A transpose joins the kernel or does not; the result is the same."""
    x, w = random(2, 6, 8), random(8, 20)
    width = columns(machine, 20, wide=True)
    types = [tensor_type(x.shape), tensor_type([-(-20 // width), 8, width])]

    def build(b: relax.BlockBuilder, v: relax.Expr, wt: relax.Expr) -> relax.Expr:
        return b.emit(call("relu", b.emit(call("gemm_packed", v, wt, n=20))))

    result = compiled(fused(types, build), machine)(x, pack_gemm(w, width))
    np.testing.assert_allclose(
        result, np.maximum(x.astype(np.float64) @ w, 0), rtol=1e-5, atol=1e-4
    )


@pytest.mark.parametrize(
    ("machine", "inner", "vectors"),
    [(AVX2, 24, False), (IN_ORDER, 24, True), (IN_ORDER, sym("k"), True), (IN_ORDER, 3, False)],
    ids=str,
)
def test_left_factors_are_loaded_as_vectors(
    machine: Machine, inner: int | tirx.Expr, vectors: bool
) -> None:
    kernel = matmul_kernel([9, inner], [inner, 16], machine, transpose_b=False)
    assert ("Shuffle" in str(kernel.function)) is vectors


def test_compiles_for_neon() -> None:
    assert packed_kernel([sym("m"), 24], 48, NEON).assembly_uses("fmla")
