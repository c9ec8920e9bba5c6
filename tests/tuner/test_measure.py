"""Measurements in a process apart: what they give, and how they end."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import rten_aot
from rten_aot.tuner import measure
from rten_aot.tuner.measure import Bench, MeasureError, Times, ratio
from tests.codegen.nets import Net


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One that times its steps, one that does not, one that fails when it runs."""
    folder = tmp_path_factory.mktemp("libraries")
    net = Net()
    y = net.op("MatMul", net.input("x", (8, 8)), np.eye(8, dtype=np.float32), name="product")
    source = net.write(folder / "net.rten", net.op("Softmax", y, name="softmax"))
    target = "llvm -mcpu=native"
    return {
        "timed": rten_aot.compile(source, folder / "timed.so", target=target, profile=True),
        "plain": rten_aot.compile(source, folder / "plain.so", target=target),
    }


BENCH = Bench([np.ones((8, 8), np.float32)], 1, 0.05)


def test_times_of_steps(libraries: dict[str, Path]) -> None:
    times = BENCH.measure(libraries["timed"], libraries["timed"], limit=60, profile=True)
    runs = times.seconds.shape[1]
    assert runs >= measure.LEAST_RUNS
    steps = len(rten_aot.load(libraries["timed"]).metadata["profile"])
    assert times.steps.shape == (2, runs, steps)
    assert (times.steps > 0).all()
    assert times.medians().shape == (steps,)
    whole, both, one = times.whole(), times.of(range(steps)), times.of([0])
    assert 0 < one.before < both.before < whole.before
    assert 0.2 < whole.median <= whole.high
    assert 0.2 < both.median <= both.high


def test_times_of_models(libraries: dict[str, Path]) -> None:
    times = BENCH.measure(libraries["plain"], libraries["timed"], limit=60)
    assert times.whole().before > 0
    assert times.steps.size == 0


def test_runs_that_take_too_long_are_ended(libraries: dict[str, Path]) -> None:
    start = time.perf_counter()
    with pytest.raises(MeasureError, match=r"^took longer than 2 s$"):
        Bench(BENCH.inputs, 1, 3600.0).measure(libraries["plain"], libraries["plain"], limit=2)
    assert time.perf_counter() - start < 30


def test_failures_are_told(libraries: dict[str, Path], tmp_path: Path) -> None:
    missing = tmp_path / "none.so"
    with pytest.raises(MeasureError, match=r"ModelLoadError: .*none\.so"):
        BENCH.measure(libraries["plain"], missing, limit=60)
    wrong = Bench([np.ones((8, 9), np.float32)], 1, 0.05)
    with pytest.raises(MeasureError, match=r'InputError: .*"x"'):
        wrong.measure(libraries["plain"], libraries["plain"], limit=60)


def test_crashes_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_WORKER", ["-c", "import os; os.abort()"])
    with pytest.raises(MeasureError, match=r"^ended by signal 6$"):
        BENCH.measure(Path("a.so"), Path("b.so"), limit=60)


def test_the_worker_needs_no_compiler() -> None:
    code = "import sys; sys.modules['tvm'] = None; import rten_aot.tuner.worker"
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(measure._environment()))


def test_ratios_are_those_of_neighbouring_runs() -> None:
    """What slows both down does not count."""
    load = np.linspace(1, 10, 101)
    found = ratio(load, 0.5 * load)
    assert (found.before, found.median, found.high) == (5.5, 0.5, 0.5)


def test_interruptions_are_not_in_the_times_of_steps() -> None:
    """They make most runs longer, but each step in a few runs only."""
    steps = np.full((2, 9, 6), 1000)
    for run in range(6):
        steps[:, run, run] = 50_000
    times = Times(steps.sum(axis=2) * 1e-9, steps)
    np.testing.assert_allclose(times.medians(), np.full(6, 1e-6))
    assert times.whole().before > 1e-5


def test_noise_makes_ratios_uncertain() -> None:
    rng = np.random.default_rng(0)
    before = rng.uniform(1, 2, 400)
    few = ratio(before[:20], rng.uniform(1, 2, 20))
    many = ratio(before, rng.uniform(1, 2, 400))
    assert few.high > few.median
    assert 0.85 < many.median < 1.15
    assert many.high - many.median < few.high - few.median
    ((one,), (other,)) = ([1.0], [2.0])
    assert ratio(np.array([one]), np.array([other])).high == 2.0
