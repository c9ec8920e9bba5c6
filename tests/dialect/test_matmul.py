"""Matrix products as their TE definitions say."""

from __future__ import annotations

import numpy as np
import pytest

import rten_aot.dialect.matmul  # noqa: F401
from rten_aot.errors import ShapeError
from tests.dialect.harness import run


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 5)),
        ((2, 3, 4), (4, 5)),
        ((3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (6, 4, 5)),
        ((1, 3, 4), (5, 4, 1)),
    ],
    ids=str,
)
def test_matmul(a: tuple[int, ...], b: tuple[int, ...], transpose_b: bool, symbolic: bool) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(a, dtype="float32"), rng.standard_normal(b, dtype="float32")
    operand = np.ascontiguousarray(np.swapaxes(y, -1, -2)) if transpose_b else y
    (result,) = run("matmul", x, operand, symbolic=symbolic, transpose_b=transpose_b)
    np.testing.assert_allclose(result, x.astype(np.float64) @ y, rtol=1e-5, atol=1e-5)


def test_products_of_bytes_are_summed_exactly() -> None:
    x, y = np.full((1, 4), 255, "uint8"), np.full((4, 1), 127, "int8")
    (result,) = run("matmul", x, y)
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, [[129540]])


def test_integers() -> None:
    x = np.arange(-6, 6, dtype="int32").reshape(3, 4)
    y = np.arange(20, dtype="int32").reshape(4, 5)
    (result,) = run("matmul", x, y)
    np.testing.assert_array_equal(result, x @ y)


def test_inner_sizes_must_agree() -> None:
    with pytest.raises(ShapeError, match="matrix product of inner sizes 4 and 3"):
        run("matmul", np.ones((2, 4), "float32"), np.ones((3, 2), "float32"))
