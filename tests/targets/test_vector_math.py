"""The polynomials against float64 functions: accuracy, special values, NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from rten_aot.dialect import vector_math
from tests.targets.generic import MACHINES, Compiled, build, mapped, normal_cdf, placeholder

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

NAMES = (
    "exp",
    "expm1",
    "log",
    "sigmoid",
    "tanh",
    "erf",
    "softplus",
    "silu",
    "mish",
    "gelu_erf",
    "gelu_tanh",
)


def sigmoid(x: Doubles) -> Doubles:
    small = np.exp(-np.abs(x))
    result: Doubles = np.where(x < 0, small, 1) / (1 + small)
    return result


def erf(x: Doubles) -> Doubles:
    return np.array([math.erf(v) for v in x])


def gelu_tanh(x: Doubles) -> Doubles:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    result: Doubles = x * sigmoid(2 * inner)
    return result


EXACT: dict[str, Callable[[Doubles], Doubles]] = {
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "erf": erf,
    "softplus": lambda x: np.logaddexp(0, x),
    "silu": lambda x: x * sigmoid(x),
    "mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "gelu_erf": lambda x: x * normal_cdf(x),
    "gelu_tanh": gelu_tanh,
}

ULPS = {
    "exp": 1.5,
    "expm1": 2,
    "log": 1.5,
    "sigmoid": 3,
    "tanh": 2.5,
    "erf": 1.5,
    "softplus": 2.5,
    "silu": 4,
    "mish": 7,
    "gelu_erf": 8,
    "gelu_tanh": 8,
}
"""Largest error in units in the last place, for arguments between -5 and 5; of the gelus that of
0.1 where the result is smaller: the polynomials are made for errors relative to 1."""

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1e-10, -1e-10, 20.0, -20.0]
SPECIAL += [88.7, 88.72, 88.73, 88.8, 100.0, -87.3, -1000.0, 1e38, -1e38, 3.4e38, 1.17549435e-38]


@cache
def kernels(machine: str) -> Compiled:
    x = placeholder(1024)
    results = [mapped(x, getattr(vector_math, name), name) for name in NAMES]
    return build([x], results, MACHINES[machine])


def evaluate(name: str, x: Floats, machine: str = "x86-64-v3") -> Floats:
    padded = np.zeros(-(-len(x) // 1024) * 1024, np.float32)
    padded[: len(x)] = x
    position = NAMES.index(name)
    parts = [kernels(machine)(part)[position] for part in padded.reshape(-1, 1024)]
    result: Floats = np.concatenate(parts)[: len(x)]
    return result


def exact(name: str, x: Floats) -> Doubles:
    with np.errstate(all="ignore"):
        return EXACT[name](x.astype(np.float64))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", NAMES)
def test_accuracy(name: str, machine: str) -> None:
    x = np.linspace(-5, 5, 16 * 1024, dtype=np.float32)
    if name == "log":
        x = np.exp(x)
    expected = exact(name, x)
    error = np.abs(evaluate(name, x, machine) - expected)
    size = np.maximum(np.abs(expected.astype(np.float32)), 0.1 if "gelu" in name else 0)
    unit = np.spacing(size.astype(np.float32)).astype(np.float64)
    # Without fused multiply-add there is one more rounding at each step.
    allowed = ULPS[name] * (2 if machine == "x86-64-v2" else 1)
    assert np.max(error / np.maximum(unit, 2.0**-149)) <= allowed


@pytest.mark.parametrize("name", NAMES)
def test_wide_range(name: str) -> None:
    rng = np.random.default_rng(0)
    x = (10.0 ** rng.uniform(-38, 38, 4096) * rng.choice([-1, 1], 4096)).astype(np.float32)
    x = np.concatenate([x, np.linspace(-130, 130, 4096, dtype=np.float32)])
    with np.errstate(over="ignore", under="ignore"):
        expected = exact(name, x).astype(np.float32)
    got = evaluate(name, x)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(expected))
    near = np.isfinite(expected)
    # Far out in the tails of gelu the result is tiny and its relative error large.
    absolute = 1e-6 if name.startswith("gelu") else 2e-36
    np.testing.assert_allclose(got[near], expected[near], rtol=2e-6, atol=absolute)


@pytest.mark.parametrize("name", NAMES)
def test_special_values(name: str) -> None:
    x = np.array(SPECIAL, np.float32)
    with np.errstate(all="ignore"):
        expected = exact(name, x).astype(np.float32)
    got = evaluate(name, x)
    np.testing.assert_allclose(got, expected, rtol=2e-6, atol=1e-35)
    sure = ~np.isnan(expected) & (np.abs(expected) > 1e-30)
    np.testing.assert_array_equal(np.signbit(got[sure]), np.signbit(expected[sure]))


@pytest.mark.parametrize("name", ["expm1", "tanh", "erf"])
def test_negative_zero_is_kept(name: str) -> None:
    result = evaluate(name, np.array([-0.0, 0.0], np.float32))
    assert list(np.signbit(result)) == [True, False]


def test_exp_gives_denormal_results() -> None:
    x = np.array([-87.5, -90, -100, -103, -104, -105, -np.inf], np.float32)
    expected = np.exp(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(evaluate("exp", x), expected, rtol=0, atol=2.0**-149)
    assert evaluate("exp", x)[-1] == 0


def test_log_takes_denormal_arguments() -> None:
    x = np.array([1e-45, 1e-40, 1.1e-38, 2.0**-126], np.float32)
    expected = np.log(x.astype(np.float64))
    np.testing.assert_allclose(evaluate("log", x), expected, rtol=1e-6)


@pytest.mark.parametrize("machine", MACHINES)
def test_no_library_calls(machine: str) -> None:
    text = kernels(machine).assembly
    for function in ("expf", "logf", "tanhf", "erff", "nearbyintf", "fmaf", "powf"):
        assert function not in text
