"""The driver layer in C, on emulated GPUs: runs as graphs, and times of steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rten_aot.runtime import Model, ModelLoadError, ModelRunError, load
from tests.cuda import fake_library
from tests.cuda.emulator import Emulator
from tests.cuda.fake_library import build_fake, check, expected, feed

UNKNOWN = 999


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_fake(tmp_path_factory.mktemp("cuda"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_fake(tmp_path_factory.mktemp("plain"), plain=True, can_fail=False)


@pytest.fixture(scope="module")
def plain_that_fails(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_fake(tmp_path_factory.mktemp("plain_fails"), plain=True)


def check_plain(model: Model, batch: int = 3) -> None:
    x = feed(batch)["x"]
    results = model.run({"x": x})
    assert list(results) == ["y", "sums"]
    for name, array in results.items():
        np.testing.assert_allclose(array, expected(feed(batch))[name], rtol=1e-6)


def graph_calls(gpu: Emulator) -> list[str]:
    """Launches, and what is done with graphs, since the last time."""
    names = {
        "cuLaunchKernel": "kernel",
        "cuStreamBeginCapture_v2": "record",
        "cuGraphLaunch": "replay",
        "cuGraphExecDestroy": "drop",
    }
    calls = [line.split()[0] for line in gpu.take_log()]
    return [names[call] for call in calls if call in names]


@pytest.mark.parametrize("library", ["plain", "plain_that_fails"])
def test_runs_that_repeat_are_recorded(
    library: str, gpu: Emulator, request: pytest.FixtureRequest
) -> None:
    with load(request.getfixturevalue(library), cuda_graph=True) as model:
        expectations = [
            (5, ["kernel", "kernel"]),
            (5, ["record", "kernel", "kernel", "replay"]),
            (5, ["replay"]),
            (5, ["replay"]),
            (4, ["drop", "kernel", "kernel"]),
            (5, ["kernel", "kernel"]),
            (5, ["record", "kernel", "kernel", "replay"]),
            (5, ["replay"]),
        ]
        for batch, calls in expectations:
            check_plain(model, batch)
            assert graph_calls(gpu) == calls
        # The same shapes in other memory.
        x, y = feed(5)["x"], np.zeros((5, 4), np.float32)
        model.run({"x": x}, outputs={"y": y})
        assert graph_calls(gpu) == ["replay"], "the host's memory is not part of a graph"
        np.testing.assert_allclose(y, expected(feed(5))["y"])
        model.run({"x": x + 1})
        assert graph_calls(gpu) == ["replay"]
    assert gpu.live().graphs == 0


def test_runs_that_read_the_gpu_are_not_recorded(path: Path, gpu: Emulator) -> None:
    with load(path, cuda_graph=True) as model:
        for _ in range(4):
            check(model)
        assert set(graph_calls(gpu)) == {"kernel"}


@pytest.mark.parametrize(
    "function", ["cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"]
)
def test_recording_may_fail(plain: Path, gpu: Emulator, function: str) -> None:
    with load(plain, cuda_graph=True) as model:
        check_plain(model)
        gpu.fail(function, UNKNOWN)
        with pytest.raises(ModelRunError, match="on the GPU, in the recording of a graph: error"):
            check_plain(model)
        if function != "cuStreamEndCapture":  # which leaves the stream as it was
            check_plain(model)


def test_replay_may_fail(plain: Path, gpu: Emulator) -> None:
    with load(plain, cuda_graph=True) as model:
        for _ in range(3):
            check_plain(model)
        gpu.fail("cuGraphLaunch", UNKNOWN)
        with pytest.raises(ModelRunError, match="on the GPU, in a kernel"):
            check_plain(model)
        check_plain(model)


def test_graphs_of_the_default_stream(plain: Path, gpu: Emulator) -> None:
    with pytest.raises(ModelLoadError, match="graphs need another stream than the default one"):
        load(plain, cuda_graph=True, stream=0)


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_fake(tmp_path_factory.mktemp("profiled"), profile=True)


def test_times_of_steps(profiled: Path, gpu: Emulator) -> None:
    with load(profiled) as model:
        for _ in range(70):
            check(model, 10)
        profile = model.take_profile()
        assert [(s.calls, s.flops, s.bytes) for s in profile.steps] == [
            (70, 70 * 40, 70 * 320),
            (70, 0, 70 * 80),
        ]
        assert 0 < sum(step.nanoseconds for step in profile.steps) < profile.nanoseconds
        assert [step.calls for step in model.take_profile().steps] == [0, 0]
        # A run that fails counts for nothing.
        with pytest.raises(ModelRunError):
            model.run(feed(mode=fake_library.GRID))
        assert [step.calls for step in model.take_profile().steps] == [0, 0]


def test_events_may_fail(profiled: Path, gpu: Emulator) -> None:
    with load(profiled) as model:
        for number in (1, 2, 5):
            gpu.fail("cuEventCreate", UNKNOWN, number)
            with pytest.raises(ModelRunError, match="out of memory: "):
                model.run(feed())
        gpu.fail("cuEventRecord", UNKNOWN, 2)
        with pytest.raises(ModelRunError, match="on the GPU, in an event: error"):
            model.run(feed())
        check(model)


def test_peaks(profiled: Path, gpu: Emulator) -> None:
    with load(profiled) as model:
        # 1 GHz, 4 multiprocessors of 64 lanes, two operations each.
        assert model.measure_peak() == 1e9 * 4 * 64 * 2
        assert model.measure_peak(1 << 20) > 1e6
        gpu.set_memory(gpu.live().bytes)
        with pytest.raises(ModelRunError, match="the GPU's best cannot be measured: out of memory"):
            model.measure_peak(1 << 20)
        gpu.set_devices(90)
        assert model.measure_peak() == 1e9 * 4 * 128 * 2
