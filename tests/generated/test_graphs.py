"""Random graphs, with and without If and Loop, against NumPy on several inputs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import rten_aot
from tests.generated.graphs import KINDS, RUNS, Drawn, Kind, draw
from tests.ops.test_control_flow import GraphMaker
from tests.support.cases import MODES, THREADS, Array, Mode
from tests.support.rten_writer import write_model

BATCH = 20
SEEDS = range(1000, 1100, BATCH)


def faults(seeds: Sequence[int], mode: Mode, kind: Kind) -> list[str]:
    """What is wrong with the graphs of these seeds, compiled as one model."""
    maker = GraphMaker()
    graphs = [draw(seed, mode, maker, kind) for seed in seeds]
    outputs = [i for drawn in graphs for i in drawn.outputs]
    wrong: list[str] = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = write_model(maker.graph(*outputs), Path(folder) / "model.rten")
            library = rten_aot.compile(path, target="llvm -mcpu=native")
            for threads in THREADS:
                with rten_aot.load(library, num_threads=threads) as model:
                    for run in range(RUNS):
                        wrong += _differences(model, maker, graphs, run)
    except Exception as err:
        if len(seeds) == 1:
            return [f"{str(err)[:1000]}\n{graphs[0].describe()}"]
        half = len(seeds) // 2
        parts = (seeds[:half], seeds[half:])
        return [fault for part in parts for fault in faults(part, mode, kind)]
    return wrong


def _differences(
    model: rten_aot.runtime.Model, maker: GraphMaker, graphs: Sequence[Drawn], run: int
) -> list[str]:
    feeds = {i: x for drawn in graphs for i, x in drawn.feeds[run].items()}
    results = iter(model(*(feeds[i].astype(_dtype(feeds[i])) for i in maker.inputs)))
    wrong = []
    for drawn in graphs:
        for place, want in zip(drawn.outputs, drawn.wanted(run), strict=True):
            got = next(results)
            try:
                _compare(got, want, rough=place in drawn.program.rough)
            except AssertionError as err:
                shapes = [x.shape for x in drawn.feeds[run].values()]
                wrong.append(f"run {run} on {shapes}, value {place}: {err}\n{drawn.describe()}")
    return wrong


def _dtype(x: Array) -> str:
    return "float32" if x.dtype.kind == "f" else "int32"


def _compare(got: Array, want: Array, *, rough: bool) -> None:
    assert (got.shape, got.dtype) == (want.shape, np.dtype(_dtype(want)))
    if rough:
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=2e-3)
    else:
        np.testing.assert_array_equal(got, want.astype(got.dtype))


@pytest.mark.slow
@pytest.mark.parametrize("first", SEEDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_graphs(kind: Kind, mode: Mode, first: int) -> None:
    wrong = faults(range(first, first + BATCH), mode, kind)
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_a_few_graphs(mode: Mode) -> None:
    wrong = [fault for kind in KINDS for fault in faults(range(2), mode, kind)]
    assert not wrong, "\n\n".join(wrong)
