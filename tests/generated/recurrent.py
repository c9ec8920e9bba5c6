"""Layers that go step by step, spectra, and Dropout, which does nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx import NodeProto

from tests.generated.generator import Generator
from tests.ops import test_rnn, test_signal
from tests.support.cases import MODES, Array, Case


@dataclass(frozen=True, eq=False)
class Partial(Case):
    """Asks for some of an operator's results, those at ``places``."""

    places: Sequence[int] = ()

    def nodes(self, operands: Sequence[str], results: Sequence[str]) -> list[NodeProto]:
        """The node, with no names for what is not asked for."""
        names = dict(zip(self.places, results, strict=True))
        return super().nodes(operands, [names.get(i, "") for i in range(max(self.places) + 1)])


def recurrent(g: Generator, name: str) -> Case:
    """LSTM, or GRU of both kinds, with any of the optional operands and results."""
    op = g.pick("LSTM", "GRU")
    gates, results = (4, 3) if op == "LSTM" else (3, 2)
    direction = g.pick("forward", "reverse", "bidirectional")
    directions = test_rnn.DIRECTIONS[direction]
    steps, batch = g.random.randint(1, 9), g.random.randint(1, 5)
    inputs, hidden = g.pick(1, 2, 3, 5, 8, 17), g.pick(1, 3, 5, 7, 8, 15, 16, 17, 31, 33, 40)
    before = op == "GRU" and g.chance(0.5)

    def draw(*shape: int) -> Array:
        return (g.array(*shape) * g.pick(0.3, 1.0)).astype("float32")

    operands: list[Array | None] = [
        draw(steps, batch, inputs),
        draw(directions, gates * hidden, inputs),
        draw(directions, gates * hidden, hidden) / np.float32(hidden**0.5),
        draw(directions, 2 * gates * hidden) if g.chance(0.7) else None,
        g.numbers.integers(0, steps + 1, batch, "int32") if g.chance(0.3) else None,
        *[draw(directions, batch, hidden) if g.chance(0.6) else None for _ in range(results - 1)],
    ]
    while operands[-1] is None:
        operands.pop()
    wanted = sorted(g.some(results, 1))

    def expected(*given: Any) -> list[Array]:
        all_ = test_rnn.reference(op, direction, hidden, before, *given)
        return [all_[i] for i in wanted]

    attrs: dict[str, Any] = {"hidden_size": hidden}
    if direction != "forward" or g.chance(0.5):
        attrs["direction"] = direction
    if op == "GRU":
        attrs["linear_before_reset"] = int(before)
    return Partial(
        name,
        op,
        operands,
        expected,
        attrs,
        outputs=len(wanted),
        places=wanted,
        tolerance="approximate",
        fixed=test_rnn.FIXED,
        modes=MODES,
    )


def stft(g: Generator, name: str) -> Case:
    length, step = g.pick(1, 2, 5, 8, 9, 16, 31, 64), g.random.randint(1, 20)
    windowed, channels = g.chance(0.7), g.pick(None, 1, 1, 2)
    size = length + g.random.randrange(60)
    signal = g.array(g.random.randint(1, 3), size, *([] if channels is None else [channels]))
    onesided = 0 if channels == 2 else g.pick(None, 0, 1)
    window = np.abs(g.array(length)) if windowed else None
    stated = None if windowed and g.chance(0.5) else length
    return replace(test_signal.stft(name, signal, step, window, stated, onesided), modes=MODES)


def dropout(g: Generator, name: str) -> Case:
    x = g.values(g.shape())
    wanted = sorted(g.some(2, 1))
    operands = [x, np.float32(0.5).reshape(()), np.array(False)][: g.random.randint(1, 3)]

    def expected(v: Array, *_: Array) -> list[Array]:
        both = [v, np.ones(v.shape, "int32")]
        return [both[i] for i in wanted]

    return Partial(
        name,
        "Dropout",
        operands,
        expected,
        outputs=len(wanted),
        places=wanted,
        constant=[2],
        modes=MODES,
    )


FAMILIES: dict[str, Callable[[Generator, str], Case]] = {
    "recurrent": recurrent,
    "stft": stft,
    "dropout": dropout,
}
