"""LSTM and GRU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rten_aot
from tests.support.cases import Case, Mode, Suite, run_case
from tests.support.reference import gru, lstm

Array = np.ndarray[Any, Any]
# Only the numbers of steps and batch entries are unknown in the tests with dynamic sizes.
FIXED = [
    (0, 2),
    *((i, k) for i in (1, 2, 3) for k in range(3)),
    *((i, k) for i in (5, 6) for k in (0, 2)),
]
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


def reference(
    op: str,
    direction: str,
    hidden: int,
    linear_before_reset: bool,
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    counts: Array | None = None,
    h0: Array | None = None,
    c0: Array | None = None,
) -> list[Array]:
    """The layer in NumPy, with the operands of the ONNX operator."""
    rows = w.shape[1]
    directions = DIRECTIONS[direction]
    projected = np.einsum("tbi,dgi->tbdg", x, w)
    hidden_bias = np.zeros((directions, hidden)) if linear_before_reset else None
    if b is not None:
        recurrent = b[:, rows:].copy()
        if linear_before_reset:
            hidden_bias = recurrent[:, 2 * hidden :].copy()
            recurrent[:, 2 * hidden :] = 0
        projected += b[:, :rows] + recurrent
    zeros = np.zeros((directions, x.shape[1], hidden))
    h0 = zeros if h0 is None else h0
    options: Any = {"reverse": direction == "reverse", "lengths": counts}
    if op == "LSTM":
        return list(lstm(projected, r, h0, zeros if c0 is None else c0, **options))
    return list(gru(projected, r, h0, hidden_bias=hidden_bias, **options))


def layer(
    op: str,
    id: str,
    steps: int,
    batch: int,
    inputs: int,
    hidden: int,
    direction: str | None = "forward",
    *,
    bias: bool = True,
    lengths: list[int] | None = None,
    states: bool = True,
    linear_before_reset: int | None = None,
    **more: Any,
) -> Case:
    """A layer with random weights, optional operands as asked for."""
    gates = 4 if op == "LSTM" else 3
    directions = DIRECTIONS[direction or "forward"]
    rng = np.random.default_rng(len(id))

    def draw(*shape: int) -> Array:
        return rng.uniform(-1, 1, shape).astype(np.float32)

    operands: list[Array | None] = [
        draw(steps, batch, inputs),
        draw(directions, gates * hidden, inputs),
        draw(directions, gates * hidden, hidden) / np.float32(hidden**0.5),
        draw(directions, 2 * gates * hidden) if bias else None,
        None if lengths is None else np.array(lengths, np.int32),
    ]
    if states:
        operands += [draw(directions, batch, hidden) for _ in range(2 if op == "LSTM" else 1)]
    while operands[-1] is None:
        operands.pop()

    def expected(*given: Any) -> list[Array]:
        return reference(op, direction or "forward", hidden, bool(linear_before_reset), *given)

    attrs: dict[str, Any] = {"hidden_size": hidden}
    if direction is not None:
        attrs["direction"] = direction
    if linear_before_reset is not None:
        attrs["linear_before_reset"] = linear_before_reset
    return Case(
        f"{op.lower()}-{id}",
        op,
        operands,
        expected,
        attrs,
        outputs=3 if op == "LSTM" else 2,
        tolerance="approximate",
        fixed=FIXED,
        **more,
    )


def without(case: Case, place: int) -> Case:
    """The same with one operand left out."""
    operands = [x if i != place else None for i, x in enumerate(case.inputs)]
    while operands[-1] is None:
        operands.pop()
    return replace(case, inputs=operands)


def both(id: str, *sizes: Any, **options: Any) -> list[Case]:
    """An LSTM and both kinds of GRU."""
    return [
        layer("LSTM", id, *sizes, **options),
        layer("GRU", id, *sizes, **options),
        layer("GRU", f"{id}-before", *sizes, linear_before_reset=1, **options),
    ]


SUITE = Suite(
    [
        *both("one", 1, 1, 1, 1),
        *both("default", 3, 1, 2, 4, None, states=False),
        *both("bare", 3, 2, 5, 16, bias=False, states=False),
        *both("odd", 4, 3, 7, 33),
        *[
            layer("GRU", f"{direction}-{before}", 3, 2, 3, 5, direction, linear_before_reset=before)
            for direction in DIRECTIONS
            for before in (0, 1)
        ],
        *both("reverse", 5, 2, 3, 8, "reverse"),
        *both("bidirectional", 5, 2, 3, 21, "bidirectional"),
        *both("bidirectional-bare", 4, 1, 3, 9, "bidirectional", bias=False, states=False),
        *both("lengths", 5, 3, 4, 8, lengths=[5, 0, 3]),
        *both("lengths-reverse", 5, 3, 4, 8, "reverse", lengths=[2, 5, 1]),
        *both("lengths-bidirectional", 6, 2, 4, 17, "bidirectional", lengths=[4, 6]),
        *both("wide", 2, 1, 40, 128),
        *both("shared-by-threads", 3, 1, 5, 513),
        *both("no-batch", 3, 0, 4, 8),
        *both("no-inputs", 3, 2, 0, 4),
        *both("no-steps", 0, 2, 3, 4, "bidirectional"),
        *both("lengths-bare", 4, 3, 3, 5, "bidirectional", lengths=[4, 0, 2], states=False),
        *[
            without(case, 5)
            for direction in DIRECTIONS
            for case in both(f"{direction}-no-h", 4, 3, 3, 5, direction, lengths=[1, 4, 0])
        ],
        *[
            without(layer("LSTM", f"{direction}-no-c", 4, 3, 3, 5, direction), 6)
            for direction in DIRECTIONS
        ],
        *[
            replace(case, id=f"{case.id}-{'-'.join(map(str, stored))}", constant=stored, fixed=())
            for case in both("all-free", 4, 3, 3, 5, "bidirectional", lengths=[4, 1, 3])
            for stored in ((), (1,), (2,), (5,), (1, 2, 3))
        ],
        *both("many", 3, 33, 4, 16, "bidirectional"),
    ]
)


@pytest.mark.parametrize(("case", "mode"), SUITE.parameters())
def test_rnn(case: Case, mode: Mode) -> None:
    SUITE.check(case, mode)


def test_peepholes_are_refused() -> None:
    case = layer("LSTM", "peepholes", 2, 1, 3, 4, lengths=[2])
    inputs = [*case.inputs, np.zeros((1, 12), np.float32)]
    peeping = Case("peeping", "LSTM", inputs, [], case.attrs, outputs=3)
    with pytest.raises(rten_aot.UnsupportedOpError, match="peephole"):
        run_case(peeping)


def test_wrong_weights_are_refused() -> None:
    case = layer("GRU", "odd", 2, 1, 3, 4)
    wrong = Case("wrong", "GRU", case.inputs, [], {"hidden_size": 5}, outputs=2)
    with pytest.raises(rten_aot.ShapeError, match=r"input W has shape \[1, 12, 3\]"):
        run_case(wrong)


@pytest.mark.parametrize("lengths", [[4], [-1]])
def test_length_out_of_range(lengths: list[int]) -> None:
    case = layer("LSTM", "length", 3, 1, 2, 4, lengths=lengths)
    with pytest.raises(rten_aot.ModelRunError, match="lstm-length"):
        run_case(case)
