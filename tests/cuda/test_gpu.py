"""The driver layer on a real GPU, with machine code and PTX by NVRTC."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rten_aot.codegen import nvrtc
from rten_aot.runtime import DeviceArray, Model, ModelRunError, load
from tests.cuda.fake_library import DIVERGE, MISALIGN, STRAY, build_fake, expected, feed

pytestmark = pytest.mark.gpu


def capability() -> int:
    """Of the first GPU; the test is skipped if there is none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        pytest.skip("there is no NVIDIA driver")
    count, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or not count:
        pytest.skip("there is no NVIDIA GPU")
    driver.cuDeviceGetAttribute(ctypes.byref(major), 75, 0)
    driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, 0)
    return 10 * major.value + minor.value


def compiled(text: str, arch: str) -> bytes:
    kind, number = arch.split("_")
    return nvrtc.compile_image(text, int(number), ptx=kind == "compute").data


def build(folder: Path, kind: str, **options: Any) -> Path:
    """For this GPU: its own machine code (sm), or PTX that the driver compiles (compute)."""
    number = capability() if kind == "sm" else 75
    return build_fake(folder, archs=[f"{kind}_{number}"], compiled=compiled, **options)


@pytest.fixture(scope="module", params=["sm", "compute"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("gpu"), request.param)


def check(model: Model, batch: int) -> None:
    inputs = feed(batch)
    results = model.run(inputs)
    for name, array in expected(inputs).items():
        if name in results:
            np.testing.assert_allclose(results[name], array, rtol=1e-6)


def test_runs(path: Path) -> None:
    with load(path) as model:
        for batch in (3, 1, 1000, 2, 10000):
            check(model, batch)
        with pytest.raises(ModelRunError, match="index 7 is out of range"):
            model.run(feed(3, index=(0, 7)))
        check(model, 3)


def test_arrays_on_the_gpu(path: Path) -> None:
    inputs = feed(5)
    with load(path) as first, load(path) as second:
        results = first.run(inputs, on_device=True)
        assert isinstance(results["y"], DeviceArray)
        again = second.run({**inputs, "x": results["y"]})
        wanted = expected({**inputs, "x": expected(inputs)["y"]})
        np.testing.assert_allclose(again["y"], wanted["y"], rtol=1e-6)


def test_graphs(tmp_path: Path) -> None:
    with load(build(tmp_path, "sm", plain=True), cuda_graph=True) as model:
        for batch in (5, 5, 5, 5, 7, 7, 7, 5):
            x = feed(batch)["x"] + batch
            np.testing.assert_allclose(
                model.run({"x": x})["y"], expected({**feed(batch), "x": x})["y"], rtol=1e-6
            )


def test_times_of_steps(tmp_path: Path) -> None:
    with load(build(tmp_path, "sm", profile=True)) as model:
        for _ in range(100):
            check(model, 1000)
        profile = model.take_profile()
        assert [step.calls for step in profile.steps] == [100, 100]
        assert 0 < sum(step.nanoseconds for step in profile.steps) < profile.nanoseconds
        assert model.measure_peak() > 1e11
        assert 1e10 < model.measure_peak(1 << 28) < 2e13


def test_threads(path: Path) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            with load(path) as model:
                for batch in range(1, 200):
                    check(model, batch)
        except BaseException as err:
            errors.append(err)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


@pytest.mark.parametrize(("mode", "kernel"), [(STRAY, "stray"), (MISALIGN, "misalign")])
def test_faults_of_kernels(path: Path, mode: int, kernel: str) -> None:
    """In a process of its own, whose GPU is lost afterwards."""
    assert mode != DIVERGE, "which a GPU may survive"
    code = f"""
from rten_aot.runtime import load
from tests.cuda.fake_library import feed
load({str(path)!r}).run(feed(mode={mode}))
"""
    root = str(Path(__file__).parents[2])
    for blocking, place in (("0", r"a kernel \(with CUDA_LAUNCH_BLOCKING=1 "), ("1", kernel)):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": root, "CUDA_LAUNCH_BLOCKING": blocking},
            capture_output=True,
            text=True,
            check=False,
        )
        assert re.search(f"ModelRunError: on the GPU, in {place}", done.stderr), done.stderr
