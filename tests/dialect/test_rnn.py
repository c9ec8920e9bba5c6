"""The kernels of recurrent layers against plain NumPy loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rten_aot.dialect.rnn  # noqa: F401
from rten_aot.dialect.recurrence import LANES, blocks_of
from tests.dialect.harness import failure, run
from tests.support.reference import gru, lstm

Array = Any


def pack_input(w: Array, gates: int) -> Array:
    """[directions, gates * hidden, inputs] -> [inputs, directions * blocks * gates * LANES]."""
    directions, rows, inputs = w.shape
    hidden = rows // gates
    pad = blocks_of(hidden) * LANES - hidden
    x = np.pad(w.reshape(directions, gates, hidden, inputs), ((0, 0), (0, 0), (0, pad), (0, 0)))
    blocks = blocks_of(hidden)
    x = x.reshape(directions, gates, blocks, LANES, inputs).transpose(4, 0, 2, 1, 3)
    return np.ascontiguousarray(x.reshape(inputs, directions * blocks * gates * LANES))


def pack_recurrent(r: Array, gates: int) -> Array:
    """[directions, gates * hidden, hidden] -> [directions, blocks, hidden, gates * LANES]."""
    directions, _, hidden = r.shape
    packed = pack_input(r, gates).reshape(hidden, directions, -1, gates * LANES)
    return np.ascontiguousarray(packed.transpose(1, 2, 0, 3))


CASES = [
    (1, 1, 1, 1, False, None),
    (3, 2, 1, 16, False, None),
    (4, 3, 2, 21, False, [4, 0, 2]),
    (4, 2, 1, 33, True, [3, 4]),
    (5, 1, 2, 7, False, None),
    (0, 2, 1, 8, False, None),
    (3, 0, 2, 8, False, None),
]


def make(
    steps: int, batch: int, directions: int, hidden: int, gates: int, lengths: list[int] | None
) -> tuple[Array, Array, Array, Array, list[Array]]:
    rng = np.random.default_rng(hidden)
    x = rng.standard_normal((steps, batch, directions, gates * hidden)).astype("f")
    r = (rng.standard_normal((directions, gates * hidden, hidden)) / hidden**0.5).astype("f")
    h0 = rng.standard_normal((directions, batch, hidden)).astype("f")
    flat = np.stack([x[:, :, d] for d in range(directions)], 0)
    columns = flat.transpose(0, 3, 1, 2).reshape(directions, gates * hidden, steps * batch)
    width = directions * blocks_of(hidden) * gates * LANES
    packed = pack_input(columns, gates).reshape(steps, batch, width)
    return x, r, h0, packed, [] if lengths is None else [np.array(lengths, np.int32)]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_lstm(case: Any, symbolic: bool) -> None:
    steps, batch, directions, hidden, reverse, lengths = case
    x, r, h0, packed, extra = make(steps, batch, directions, hidden, 4, lengths)
    c0 = h0[::-1] * np.float32(0.5)
    got = run(
        "lstm", packed, pack_recurrent(r, 4), h0, c0, *extra,
        hidden=hidden, reverse=reverse, node=0, symbolic=symbolic,
    )  # fmt: skip
    known = None if lengths is None else np.array(lengths)
    want = lstm(x, r, h0, c0, reverse=reverse, lengths=known)
    for g, w in zip(got[:3], want, strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("linear_before_reset", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_gru(case: Any, linear_before_reset: bool, symbolic: bool) -> None:
    steps, batch, directions, hidden, reverse, lengths = case
    x, r, h0, packed, extra = make(steps, batch, directions, hidden, 3, lengths)
    attrs: Any = {"hidden": hidden, "reverse": reverse, "node": 0, "symbolic": symbolic}
    bias = None
    if linear_before_reset:
        bias = np.linspace(-1, 1, directions * hidden).reshape(directions, hidden).astype("f")
        padding = ((0, 0), (0, blocks_of(hidden) * LANES - hidden))
        got = run("gru", packed, pack_recurrent(r, 3), h0, np.pad(bias, padding), *extra, **attrs)
    else:
        gates, last = r[:, : 2 * hidden], r[:, 2 * hidden :]
        weights = pack_recurrent(gates, 2), pack_recurrent(last, 1)
        got = run("gru_reset_first", packed, *weights, h0, *extra, **attrs)
    known = None if lengths is None else np.array(lengths)
    want = gru(x, r, h0, hidden_bias=bias, reverse=reverse, lengths=known)
    for g, w in zip(got[:2], want, strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-6)


def test_length_out_of_range() -> None:
    _, r, h0, packed, extra = make(3, 1, 1, 8, 4, [4])
    run("lstm", packed, pack_recurrent(r, 4), h0, h0, *extra, hidden=8, reverse=False, node=5)
    assert failure() == (1, 5)
