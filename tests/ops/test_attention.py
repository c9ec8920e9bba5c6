"""Attention as models spell it: products, a softmax between them, and whatever masks the scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, helper

import rten_aot
from tests.support.cases import Array, Case, Mode, Suite, write_cases

INF = np.inf


@dataclass(frozen=True)
class Attention(Case):
    """Inputs are q, the keys that are the values too, and an operand for each step that has one."""

    steps: Sequence[str] = ()
    """Operators between the first product and the softmax; "Where" keeps scores where it is 1."""
    heads_first: bool = True
    """Whether q, keys and result are [batch, heads, rows, …], not [batch, rows, heads, …]."""

    def nodes(self, operands: Sequence[str], results: Sequence[str]) -> list[NodeProto]:
        """Two products and what lies between."""
        nodes: list[NodeProto] = []

        def add(op: str, inputs: Sequence[str], **attrs: Any) -> str:
            name = f"{self.id}_{len(nodes)}"
            nodes.append(helper.make_node(op, inputs, [name], name=name, **attrs))
            return name

        def turned(x: str) -> str:
            return x if self.heads_first else add("Transpose", [x], perm=[0, 2, 1, 3])

        q, keys, *others = operands
        rank = np.ndim(self.inputs[0])
        swapped = [*range(rank - 2), rank - 1, rank - 2]
        values = turned(keys)
        if self.heads_first:
            last_first = add("Transpose", [keys], perm=swapped)
        else:
            last_first = add("Transpose", [keys], perm=[0, 2, 3, 1])
        scores = add("MatMul", [turned(q), last_first])
        for op in self.steps:
            if op == "Where":
                mask = add("Cast", [others.pop(0)], to=9)
                scores = add("Where", [mask, scores, others.pop(0)])
            else:
                scores = add(op, [scores, others.pop(0)])
        last = add("MatMul", [add("Softmax", [scores], axis=-1), values])
        if not self.heads_first:
            last = add("Transpose", [last], perm=[0, 2, 1, 3])
        nodes.append(helper.make_node("Identity", [last], results, name=self.id))
        return nodes


def softmax(x: Array) -> Array:
    raised = np.exp(x - x.max(-1, keepdims=True)) if x.size else x
    return np.asarray(raised / raised.sum(-1, keepdims=True))


def case(
    label: str,
    q: Array,
    keys: Array,
    *others: Any,
    steps: Sequence[str] = (),
    heads_first: bool = True,
    modes: Sequence[Mode] = ("static", "dynamic", "constant"),
) -> Attention:
    def expected(q: Array, keys: Array, *others: Array) -> Array:
        left = list(others)
        if not heads_first:
            q, keys = q.swapaxes(1, 2), keys.swapaxes(1, 2)
        scores = q @ keys.swapaxes(-1, -2)
        for op in steps:
            first = left.pop(0)
            if op == "Where":
                scores = np.where(first != 0, scores, left.pop(0))
            else:
                scores = {"Mul": np.multiply, "Div": np.divide, "Add": np.add}[op](scores, first)
        result = softmax(scores) @ keys
        return result if heads_first else result.swapaxes(1, 2)

    rows = q.ndim - 2 if heads_first else 1
    constant = [2 + i for i, x in enumerate(others) if np.ndim(x) == 0]
    return Attention(
        f"attention-{label}",
        "Attention",
        [q, keys, *(np.asarray(x) for x in others)],
        expected,
        tolerance="approximate",
        constant=constant,
        # Batches and channels are known; how long the sequences are is not.
        fixed=[(i, d) for i in (0, 1) for d in range(q.ndim) if d != rows],
        modes=modes,
        steps=steps,
        heads_first=heads_first,
    )


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(sum(shape) + seed).standard_normal(shape, "float32")


def masked(*shape: int) -> Array:
    mask = np.where(np.random.default_rng(1).random(shape) < 0.4, -3.4028235e38, 0)
    mask[..., 0] = 0
    return mask.astype("float32")


def with_value(x: Array, value: float, *place: int) -> Array:
    x = x.copy()
    x[place] = value
    return x


ROOT = np.float32(8.0)
CAUSAL = np.tril(np.ones((1, 1, 20, 20), "int32"))
SUITE = Suite(
    [
        case("plain", random(2, 3, 9, 16), random(2, 3, 21, 16)),
        case("scaled", random(1, 2, 30, 64), random(1, 2, 50, 64), ROOT, steps=["Div"]),
        case(
            "masked",
            random(2, 2, 19, 32),
            random(2, 2, 37, 32),
            ROOT,
            masked(2, 1, 1, 37),
            steps=["Div", "Add"],
        ),
        case(
            "masked-rows",
            random(2, 2, 13, 8),
            random(2, 2, 40, 8),
            masked(2, 2, 13, 40),
            steps=["Add"],
            modes=["static", "constant"],
        ),
        case(
            "causal",
            random(1, 2, 20, 16),
            random(1, 2, 20, 16),
            np.float32(0.25),
            CAUSAL,
            np.float32(-INF),
            steps=["Mul", "Where"],
            modes=["static", "constant"],
        ),
        case(
            "rows-first",
            random(2, 18, 4, 32),
            random(2, 25, 4, 32),
            ROOT,
            masked(2, 1, 1, 25),
            steps=["Div", "Add"],
            heads_first=False,
        ),
        case("rows-first-plain", random(1, 8, 3, 8), random(1, 5, 3, 8), heads_first=False),
        case("three-axes", random(3, 12, 20), random(3, 7, 20)),
        case("five-axes", random(2, 1, 2, 6, 12), random(2, 1, 2, 11, 12)),
        case("few-channels", random(1, 2, 7, 3), random(1, 2, 5, 3)),
        case("odd-channels", random(1, 1, 25, 33), random(1, 1, 67, 33)),
        case("many-channels", random(1, 2, 8, 130), random(1, 2, 9, 130)),
        case("one-key", random(1, 2, 5, 8), random(1, 2, 1, 8)),
        case("one-row", random(1, 2, 1, 8), random(1, 2, 9, 8)),
        case("no-keys", random(1, 2, 5, 8), random(1, 2, 0, 8)),
        case("no-rows", random(1, 2, 0, 8), random(1, 2, 5, 8)),
        case("no-batch", random(0, 2, 5, 8), random(0, 2, 5, 8)),
        case("long", random(1, 1, 6, 16), random(1, 1, 1500, 16)),
        case("large", random(1, 2, 5, 8) * 300, random(1, 2, 70, 8) * 300),
        case("nan", with_value(random(1, 2, 7, 8), np.nan, 0, 1, 3, 2), random(1, 2, 20, 8)),
        case("infinite", with_value(random(1, 2, 7, 8), INF, 0, 1, 3, 2), random(1, 2, 20, 8)),
        case(
            "nothing-left",
            random(1, 2, 9, 8),
            random(1, 2, 20, 8),
            with_value(np.zeros((1, 1, 9, 20), "float32"), -INF, 0, 0, 4),
            steps=["Add"],
            modes=["static"],
        ),
    ]
)


@pytest.mark.parametrize(("case", "mode"), SUITE.parameters())
def test_attention(case: Case, mode: Mode) -> None:
    SUITE.check(case, mode)


@pytest.mark.parametrize(
    ("mode", "names"),
    [("static", ["masked", "rows-first"]), ("dynamic", ["scaled", "rows-first-plain"])],
)
def test_it_is_one_kernel(mode: Mode, names: list[str], tmp_path: Path) -> None:
    chosen = [c for c in SUITE.cases(mode) if c.id.removeprefix("attention-") in names]
    write_cases(chosen, mode, tmp_path / "model.rten")
    notes: list[str] = []
    rten_aot.compile(tmp_path / "model.rten", tmp_path / "model.so", explain=notes.append)
    assert sum("attention in one kernel" in n for n in notes) == 2, notes
    assert not any("softmax" in n or "transpose" in n for n in notes), notes
