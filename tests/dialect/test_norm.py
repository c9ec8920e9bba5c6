"""Normalisations against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

import rten_aot.dialect.norm  # noqa: F401
from tests.dialect.harness import Array, run

INF = np.inf


def softmax(x: Array, axis: int) -> Array:
    x = x.astype("float64")
    with np.errstate(invalid="ignore"):
        raised = np.exp(x - x.max(axis, keepdims=True))
        result: Array = raised / raised.sum(axis, keepdims=True)
    return result


def normalize(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    x = x.astype("float64")
    result: Array = (x - x.mean(axes, keepdims=True)) / np.sqrt(
        x.var(axes, keepdims=True) + epsilon
    )
    return result


def sample(shape: tuple[int, ...], scale: float = 3.0, shift: float = 0.0) -> Array:
    return (np.random.default_rng(1).normal(size=shape) * scale + shift).astype("float32")


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax(axis: int, symbolic: bool) -> None:
    x = sample((3, 9, 4), 20)
    expected = softmax(x, axis)
    np.testing.assert_allclose(
        run("softmax", x, axis=axis, symbolic=symbolic)[0], expected, rtol=1e-5, atol=1e-7
    )
    shifted = x - x.max(axis, keepdims=True).astype("float64")
    logarithm = shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))
    np.testing.assert_allclose(
        run("log_softmax", x, axis=axis, symbolic=symbolic)[0], logarithm, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_infinities(name: str) -> None:
    x = np.array([[-INF, -INF], [-INF, 0], [INF, 0]], "float32")
    (result,) = run(name, x, axis=1)
    assert np.isnan(result[0]).all()
    assert result[1].tolist() == ([0, 1] if name == "softmax" else [-INF, 0])
    assert np.isnan(result[2, 0])
    (single,) = run(name, np.array([[-INF], [2]], "float32"), axis=1)
    assert np.isnan(single[0, 0])
    assert single[1, 0] == (1 if name == "softmax" else 0)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("axes", [(2,), (1, 2), (0,)])
def test_normalize(axes: tuple[int, ...], symbolic: bool) -> None:
    x = sample((3, 5, 33), shift=2.0)
    (result,) = run("normalize", x, axes=list(axes), epsilon=1e-5, symbolic=symbolic)
    np.testing.assert_allclose(result, normalize(x, axes, 1e-5), rtol=1e-4, atol=1e-5)


def test_normalize_of_values_far_from_zero() -> None:
    x = sample((2, 64), scale=1.0, shift=1000.0)
    (result,) = run("normalize", x, axes=[1], epsilon=1e-5)
    np.testing.assert_allclose(result, normalize(x, (1,), 1e-5), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(("axes", "shape"), [((2,), (7,)), ((1, 2), (5, 7)), ((1, 2), (1, 7))])
def test_layer_norm(
    axes: tuple[int, ...], shape: tuple[int, ...], with_bias: bool, symbolic: bool
) -> None:
    x, scale, bias = sample((2, 5, 7)), sample(shape), sample(shape, shift=1.0)
    operands = [x, scale, bias] if with_bias else [x, scale]
    (result,) = run("layer_norm", *operands, axes=list(axes), epsilon=1e-3, symbolic=symbolic)
    expected = normalize(x, axes, 1e-3) * scale + (bias if with_bias else 0)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
