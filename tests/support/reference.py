"""What operators mean, in plain NumPy loops, for those that NumPy does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_REDUCTIONS: dict[str, Any] = {
    "none": lambda old, new: new,
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def scatter_elements(x: Array, indices: Array, updates: Array, axis: int, reduction: str) -> Array:
    """ScatterElements; updates come one after the other."""
    result: Array = x.copy()
    for where in np.ndindex(*indices.shape):
        target = list(where)
        target[axis] = indices[where]
        place = tuple(target)
        result[place] = _REDUCTIONS[reduction](result[place], updates[where])
    return result


def scatter_nd(x: Array, indices: Array, updates: Array, reduction: str) -> Array:
    """ScatterND; updates come one after the other."""
    result: Array = x.copy()
    for where in np.ndindex(*indices.shape[:-1]):
        place = tuple(indices[where])
        result[place] = _REDUCTIONS[reduction](result[place], updates[where])
    return result


def top_k(x: Array, k: int, axis: int, *, largest: bool) -> tuple[Array, Array]:
    """TopK: equals keep their order, NaN is greater than all numbers."""
    key = np.where(np.isnan(x), np.inf, x) if x.dtype.kind == "f" else x.astype(np.int64)
    is_nan = np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)
    order = np.lexsort((-key, ~is_nan) if largest else (key, is_nan), axis=axis)
    indices = order.take(range(k), axis)
    return np.take_along_axis(x, indices, axis), indices.astype(np.int32)


def sigmoid(x: Array) -> Array:
    """The logistic function."""
    return np.asarray(1 / (1 + np.exp(-x)))


def steps(
    count: int, directions: int, batch: int, reverse: bool, lengths: Array | None
) -> Iterator[tuple[int, int, int]]:
    """(direction, batch entry, time) in the order in which a recurrent layer visits them."""
    for d in range(directions):
        for b in range(batch):
            times = range(count if lengths is None else int(lengths[b]))
            for t in reversed(times) if reverse or d else times:
                yield d, b, t


def lstm(
    x: Array,
    r: Array,
    h0: Array,
    c0: Array,
    *,
    reverse: bool = False,
    lengths: Array | None = None,
) -> tuple[Array, Array, Array]:
    """LSTM from the products with its inputs on: [steps, batch, directions, 4 * hidden]."""
    directions, batch, hidden = h0.shape
    h, c = h0.astype(float), c0.astype(float)
    y = np.zeros((x.shape[0], directions, batch, hidden))
    for d, b, t in steps(x.shape[0], directions, batch, reverse, lengths):
        i, o, f, g = np.split(x[t, b, d] + r[d].astype(float) @ h[d, b], 4)
        c[d, b] = sigmoid(f) * c[d, b] + sigmoid(i) * np.tanh(g)
        h[d, b] = y[t, d, b] = sigmoid(o) * np.tanh(c[d, b])
    return y, h, c


def gru(
    x: Array,
    r: Array,
    h0: Array,
    *,
    hidden_bias: Array | None,
    reverse: bool = False,
    lengths: Array | None = None,
) -> tuple[Array, Array]:
    """GRU from the products with its inputs on: ``x`` is [steps, batch, directions, 3 * hidden].

    ``hidden_bias``, that of the recurrent hidden gate, is given with linear_before_reset only.
    """
    directions, batch, hidden = h0.shape
    h = h0.astype(float)
    y = np.zeros((x.shape[0], directions, batch, hidden))
    for d, b, t in steps(x.shape[0], directions, batch, reverse, lengths):
        xz, xr, xh = np.split(x[t, b, d].astype(float), 3)
        rz, rr, rh = np.split(r[d].astype(float), 3)
        z, reset = sigmoid(xz + rz @ h[d, b]), sigmoid(xr + rr @ h[d, b])
        if hidden_bias is None:
            new = np.tanh(xh + rh @ (reset * h[d, b]))
        else:
            new = np.tanh(xh + reset * (rh @ h[d, b] + hidden_bias[d]))
        h[d, b] = y[t, d, b] = (1 - z) * new + z * h[d, b]
    return y, h
