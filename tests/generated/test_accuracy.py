"""Functions of one float on random bit patterns and on dense ranges, in units in the last place."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ops.test_control_flow import GraphMaker, compiled
from tests.support.cases import Array

FLUSHED = 1.2e-38
"""Results of this size may be 0."""


@dataclass(frozen=True)
class Function:
    """An operator and what float64 makes of it.

    Errors are counted in units in the last place of the result, or of ``least`` if that is greater:
    the polynomial of a gelu is made for errors relative to 1.
    """

    op: str
    exact: Callable[[Array], Array]
    ulps: float
    least: float = 0.0
    attrs: dict[str, Any] = field(default_factory=dict)


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


def _gelu(x: Array) -> Array:
    return x * 0.5 * np.vectorize(math.erfc)(-x * math.sqrt(0.5))


def _gelu_tanh(x: Array) -> Array:
    return x * _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


FUNCTIONS = {
    "abs": Function("Abs", np.abs, 0),
    "acos": Function("Acos", np.arccos, 1.5),
    "asin": Function("Asin", np.arcsin, 1.5),
    "atan": Function("Atan", np.arctan, 1.5),
    "ceil": Function("Ceil", np.ceil, 0),
    "cos": Function("Cos", np.cos, 1),
    "elu": Function("Elu", lambda x: np.where(x < 0, np.expm1(x), x), 2, attrs={"alpha": 1.0}),
    "erf": Function("Erf", np.vectorize(math.erf), 1.5),
    "exp": Function("Exp", np.exp, 1.5),
    "floor": Function("Floor", np.floor, 0),
    "gelu": Function("Gelu", _gelu, 8, 0.1, {"approximate": "None"}),
    "gelu_tanh": Function("Gelu", _gelu_tanh, 8, 0.1, {"approximate": "Tanh"}),
    "log": Function("Log", np.log, 1.5),
    "neg": Function("Neg", np.negative, 0),
    "reciprocal": Function("Reciprocal", lambda x: 1 / x, 0.5),
    "relu": Function("Relu", lambda x: np.where(x < 0, 0, x), 0),
    "round": Function("Round", np.rint, 0),
    "sigmoid": Function("Sigmoid", _sigmoid, 3),
    "sign": Function("Sign", lambda x: np.where(x == 0, x, np.sign(x)), 0),
    "sin": Function("Sin", np.sin, 1),
    "softplus": Function("Softplus", lambda x: np.logaddexp(0, x), 2.5),
    "sqrt": Function("Sqrt", np.sqrt, 0.5),
    "tan": Function("Tan", np.tan, 1.5),
    "tanh": Function("Tanh", np.tanh, 2.5),
}


@pytest.fixture(scope="module")
def arguments() -> Array:
    numbers = np.random.default_rng(0)
    patterns = numbers.integers(0, 2**32, 1 << 17, np.uint32).view(np.float32)
    dense = [np.linspace(-s, s, 1 << 15, dtype=np.float32) for s in (1e-3, 1, 6, 30, 110, 1e4)]
    return np.concatenate([patterns, *dense, np.float32([0.0, -0.0])])


@pytest.fixture(scope="module")
def results(arguments: Array, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Array]:
    maker = GraphMaker()
    x = maker.input("x", ("n",))
    outputs = [maker.op(f.op, x, name=name, **f.attrs) for name, f in FUNCTIONS.items()]
    folder: Path = tmp_path_factory.mktemp("accuracy")
    with compiled(maker.graph(*outputs), folder) as model:
        return dict(zip(FUNCTIONS, model(arguments), strict=True))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_accuracy(name: str, arguments: Array, results: dict[str, Array]) -> None:
    function, got = FUNCTIONS[name], results[name]
    with np.errstate(all="ignore"):
        exact = function.exact(arguments.astype(np.float64))
        want = exact.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(want[number]))
    finite = np.isfinite(want)
    error = np.abs(got[finite].astype(np.float64) - exact[finite])
    unit = np.spacing(np.maximum(np.abs(want[finite]), np.float32(function.least)))
    allowed = function.ulps * unit.astype(np.float64)
    worst = int(np.argmax(error / np.maximum(allowed + FLUSHED, 2.0**-149)))
    assert np.all(error <= allowed + FLUSHED), f"{name}({arguments[finite][worst]!r})"
