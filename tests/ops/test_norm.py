from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rten_aot
from tests.support.cases import Array, Case, Mode, Suite, run_case

INF = np.inf


def rng(*shape: int, scale: float = 1.0, shift: float = 0.0, seed: int = 0) -> Array:
    generator = np.random.default_rng(sum(shape) + seed)
    return (generator.normal(size=shape) * scale + shift).astype("float32")


def softmax(x: Array, axis: int) -> Array:
    raised = np.exp(x - x.max(axis, keepdims=True)) if x.size else x
    return np.asarray(raised / raised.sum(axis, keepdims=True))


def log_softmax(x: Array, axis: int) -> Array:
    if not x.size:
        return x
    shifted = x - x.max(axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)))


def normalized(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return np.asarray((x - mean) / np.sqrt(variance + epsilon))


def per_channel(values: Array, rank: int) -> Array:
    return values.reshape(-1, *[1] * (rank - 2))


def batch_norm(x: Array, s: Array, b: Array, m: Array, v: Array, epsilon: float = 1e-5) -> Array:
    s, b, m, v = (per_channel(p, x.ndim) for p in (s, b, m, v))
    return np.asarray((x - m) / np.sqrt(v + epsilon) * s + b)


def statistics(channels: int) -> list[Array]:
    positive = np.abs(rng(channels, seed=4)) + 0.5
    return [rng(channels, seed=1), rng(channels, seed=2), rng(channels, seed=3), positive]


def instance_norm(x: Array, s: Array, b: Array) -> Array:
    axes = tuple(range(2, x.ndim))
    return np.asarray(normalized(x, axes, 1e-3) * per_channel(s, x.ndim) + per_channel(b, x.ndim))


def layer_norm(axis: int, epsilon: float = 1e-5) -> Any:
    def function(x: Array, s: Array, b: Array | None = None) -> Array:
        axes = tuple(range(axis % x.ndim, x.ndim))
        return np.asarray(normalized(x, axes, epsilon) * s + (0 if b is None else b))

    return function


ROWS = np.array([[-INF, -INF, -INF], [-INF, 0, 1], [INF, 0, 1], [np.nan, 1, 2]], "float32")

CASES = [
    *[
        Case(
            f"{op.lower()}-{label}",
            op,
            [x],
            lambda v, f=function, a=axis: f(v, a),
            {"axis": axis},
            tolerance="close",
        )
        for op, function in (("Softmax", softmax), ("LogSoftmax", log_softmax))
        for label, x, axis in (
            ("last", rng(3, 5, 33, scale=5), -1),
            ("first", rng(9, 17, scale=5), 0),
            ("middle", rng(2, 7, 31), 1),
            ("channels", rng(2, 19, 4, 4), 1),
            ("vector", rng(100), 0),
            ("negative", rng(2, 7, 31), -3),
            ("number", rng(1), -1),
            ("one", rng(4, 1), 1),
            ("far", rng(2, 10, scale=50, shift=1000), 1),
            ("infinite", ROWS, 1),
            ("infinite-columns", ROWS.T.copy(), 0),
            ("empty", np.zeros((2, 0), "float32"), 1),
            ("no-rows", np.zeros((0, 3), "float32"), 1),
        )
    ],
    *[
        # rten-convert writes axis 0 where the ONNX node has none.
        Case(
            f"{op.lower()}-no-axis",
            op,
            [rng(3, 5)],
            lambda v, f=function: f(v, 0),
            tolerance="close",
        )
        for op, function in (("Softmax", softmax), ("LogSoftmax", log_softmax))
    ],
    *[
        Case(
            f"batchnorm-{label}",
            "BatchNormalization",
            [x, *statistics(x.shape[1])],
            batch_norm,
            tolerance="approximate",
        )
        for label, x in (
            ("plane", rng(2, 17, 5, 7)),
            ("line", rng(2, 3, 9)),
            ("flat", rng(4, 33)),
            ("volume", rng(1, 3, 2, 3, 4)),
        )
    ],
    Case(
        "batchnorm-epsilon",
        "BatchNormalization",
        [rng(1, 3, 4, 4), *statistics(3)],
        lambda *v: batch_norm(*v, epsilon=0.25),
        {"epsilon": 0.25},
        tolerance="approximate",
    ),
    *[
        Case(
            f"instancenorm-{label}",
            "InstanceNormalization",
            [x, rng(x.shape[1], seed=1), rng(x.shape[1], seed=2)],
            instance_norm,
            {"epsilon": 1e-3},
            tolerance="approximate",
        )
        for label, x in (
            ("plane", rng(2, 5, 8, 9)),
            ("line", rng(2, 3, 33)),
            ("far", rng(1, 2, 50, shift=10)),
            ("pixel", rng(2, 3, 1)),
        )
    ],
    *[
        Case(
            f"layernorm-{label}",
            "LayerNormalization",
            [x, scale, *bias],
            layer_norm(axis),
            {"axis": axis},
            tolerance="approximate",
        )
        for label, x, axis, scale, bias in (
            ("last", rng(2, 5, 33), -1, rng(33), [rng(33, seed=1)]),
            ("no-bias", rng(2, 5, 33), -1, rng(33), []),
            ("two-axes", rng(2, 5, 7), 1, rng(5, 7), [rng(5, 7, seed=1)]),
            ("all", rng(3, 4), 0, rng(3, 4), [rng(3, 4, seed=1)]),
            ("broadcast", rng(2, 5, 7), 1, rng(7), [rng(5, 1)]),
            ("vector", rng(100), 0, rng(100), [rng(100, seed=1)]),
            ("far", rng(4, 64, shift=10), -1, rng(64), [rng(64, seed=1)]),
            ("no-rows", np.zeros((0, 8), "float32"), -1, rng(8), []),
            ("special", np.float32([[INF, 1, 2], [np.nan, 1, 2], [5, 5, 5]]), -1, rng(3), []),
        )
    ],
    Case(
        "layernorm-no-columns",
        "LayerNormalization",
        [np.zeros((3, 0), "float32"), np.zeros(0, "float32")],
        [np.zeros((3, 0), "float32")],
        {"axis": -1},
    ),
    Case(
        "layernorm-epsilon",
        "LayerNormalization",
        [np.zeros((2, 8), "float32"), rng(8)],
        layer_norm(-1, 0.5),
        {"epsilon": 0.5},
    ),
    Case(
        "layernorm-statistics",
        "LayerNormalization",
        [rng(2, 5, 8), rng(8)],
        lambda x, s: [
            layer_norm(-1)(x, s),
            x.mean(-1, keepdims=True),
            1 / np.sqrt(x.var(-1, keepdims=True) + np.float64(np.float32(1e-5))),
        ],
        rten={"axis": -1, "epsilon": 1e-5},
        outputs=3,
        tolerance="approximate",
    ),
]
SUITE = Suite(CASES)


@pytest.mark.parametrize(("case", "mode"), SUITE.parameters())
def test_norm(case: Case, mode: Mode) -> None:
    SUITE.check(case, mode)


def test_statistics_of_another_number_of_channels_are_refused() -> None:
    case = Case("bn", "BatchNormalization", [rng(1, 3, 4), *statistics(4)], [])
    with pytest.raises(rten_aot.ShapeError, match="numbers of channels and scale 3 and 4 differ"):
        run_case(case)
