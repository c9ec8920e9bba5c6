"""What messages call sizes: as the model does, not as variables of the compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from tvm import tirx

import rten_aot
from rten_aot.importer.size_text import size_text
from tests.ops.test_control_flow import GraphMaker, compiled

N, M = tirx.Var("n_0_0", "int64"), tirx.Var("free_1_2", "int64")
ONE = tirx.const(1, "int64")
NAMES = {"n_0_0": "n", "free_1_2": "x.shape[2]"}


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (7, "7"),
        (tirx.const(-7, "int64"), "-7"),
        (N, "n"),
        (N + M * 2, "n + x.shape[2] * 2"),
        ((N + 3) * 2 - 1, "(n + 3) * 2 - 1"),
        (N - (M - 1), "n - (x.shape[2] - 1)"),
        (tirx.floordiv(N * 2, M + 1), "n * 2 // (x.shape[2] + 1)"),
        (tirx.floordiv(N, tirx.floormod(M, N)), "n // (x.shape[2] % n)"),
        (tirx.min(N, tirx.max(M - 1, N)), "min(n, max(x.shape[2] - 1, n))"),
        (tirx.Select(tirx.EQ(N, ONE), M, N), "x.shape[2] if n == 1 else n"),
        (tirx.Select(tirx.EQ(N, ONE), M, N) + 1, "(x.shape[2] if n == 1 else n) + 1"),
        (
            tirx.Select(tirx.Or(N < 1, M >= 2), N, M),
            "n if n < 1 or x.shape[2] >= 2 else x.shape[2]",
        ),
        (tirx.Var("unknown", "int64"), "unknown"),
    ],
)
def test_the_text_of_a_size(size: int | tirx.Expr, text: str) -> None:
    assert size_text(size, NAMES) == text


def _added(g: GraphMaker, x: int, y: int) -> int:
    return g.op("Add", x, y, name="sum")


def _reshaped(g: GraphMaker, x: int, y: int) -> int:
    return g.op("Reshape", g.op("Concat", x, y, axis=1), g.constant("to", np.int32([4, -1])))


def _chosen(g: GraphMaker, x: int, y: int) -> int:
    """A size that the model computes: how many elements are not 0."""
    rows = g.op("NonZero", g.op("Cast", x, to="Int32"), name="rows")
    return g.op("Add", g.op("Cast", rows, to="Float"), y, name="sum")


@pytest.mark.parametrize(
    ("build", "x", "y", "message"),
    [
        (_added, (2, 3), (4, 3),
         "sizes n and y.shape[0] cannot be broadcast (n is 2, y.shape[0] is 4)"),
        (_added, (2, 3), (2, 5),
         "sizes x.shape[1] and m cannot be broadcast (x.shape[1] is 3, m is 5)"),
        (_reshaped, (3, 2), (3, 3),
         "[y.shape[0], x.shape[1] + m] cannot be divided into groups of [4] "
         "(x.shape[1] is 2, y.shape[0] is 3, m is 3)"),
        (_chosen, (2, 2), (2, 3),
         'sizes <number of elements found of node "rows"> and m cannot be broadcast (m is 3)'),
    ],
)  # fmt: skip
def test_messages_of_runs(
    build: Callable[[GraphMaker, int, int], int],
    x: Sequence[int],
    y: Sequence[int],
    message: str,
    tmp_path: Path,
) -> None:
    g = GraphMaker()
    graph = g.graph(build(g, g.input("x", ("n", None)), g.input("y", (None, "m"))))
    feed: Mapping[str, object] = {"x": np.ones(x, np.float32), "y": np.ones(y, np.float32)}
    with compiled(graph, tmp_path) as model:
        with pytest.raises((rten_aot.InputError, rten_aot.ModelRunError)) as raised:
            model.run(feed)
    assert str(raised.value).partition(": ")[2] == message
