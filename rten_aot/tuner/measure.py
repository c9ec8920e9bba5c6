"""Times of two libraries that run in turn in a process of their own, which has a time limit."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

LEAST_RUNS = 15
_WORKER = ["-m", "rten_aot.tuner.worker"]
_CERTAINTY = 1.96
"""Standard deviations on either side that hold 95 of 100 values."""


class MeasureError(Exception):
    """The libraries did not run to the end, or not in time."""


@dataclass(frozen=True)
class Ratio:
    """How the times of one library compare to those of another in the runs beside it."""

    before: float
    """Seconds of the other one, the median."""
    median: float
    """Of the times over those of the other one."""
    high: float
    """What the true median is not above, with near certainty."""


@dataclass(frozen=True)
class Times:
    """Those of all runs: of two libraries, by run, and by step where they time steps."""

    seconds: Array
    steps: Array

    def medians(self) -> Array:
        """Seconds of each step of the first library, the medians over its runs.

        Interruptions, which hit a few steps of each run, are not in them.
        """
        seconds: Array = np.median(self.steps[0], axis=0) * 1e-9
        return seconds

    def whole(self) -> Ratio:
        """The second library against the first."""
        return ratio(self.seconds[0], self.seconds[1])

    def of(self, steps: Sequence[int]) -> Ratio:
        """Some steps together of the second library against those of the first."""
        nanoseconds = self.steps[:, :, list(steps)].sum(axis=2)
        return ratio(nanoseconds[0] * 1e-9, nanoseconds[1] * 1e-9)


def ratio(before: Array, after: Array) -> Ratio:
    """The times ``after`` over those ``before``, pair by pair."""
    ratios = np.sort(np.maximum(after, 1e-9) / np.maximum(before, 1e-9))
    count = len(ratios)
    # Of an ordered sample: the number of values below the median is binomially distributed.
    place = math.ceil(count / 2 + _CERTAINTY * math.sqrt(count) / 2)
    high = float(ratios[min(place, count - 1)])
    return Ratio(float(np.median(before)), float(np.median(ratios)), high)


@dataclass(frozen=True)
class Bench:
    """What all measurements share."""

    inputs: Sequence[Array]
    """Those of the model, in its order."""
    threads: int | None
    seconds: float
    """How long a measurement takes at least."""
    runs: int = LEAST_RUNS
    """How many runs it has at least."""

    def measure(self, before: Path, after: Path, *, limit: float, profile: bool = False) -> Times:
        """Run two libraries in turn for at most ``limit`` seconds.

        Raises:
            MeasureError: they did not end in time, or one of them failed.
        """
        with tempfile.TemporaryDirectory(prefix="rten-aot-tune-") as name:
            folder = Path(name)
            np.savez(folder / "inputs.npz", *self.inputs)
            request = {
                "libraries": [str(before), str(after)],
                "inputs": str(folder / "inputs.npz"),
                "output": str(folder / "times.npz"),
                "threads": self.threads,
                "seconds": self.seconds,
                "runs": self.runs,
                "profile": profile,
            }
            (folder / "request.json").write_text(json.dumps(request))
            _run([str(folder / "request.json")], limit)
            with np.load(folder / "times.npz") as times:
                return Times(times["seconds"], times["steps"])


def _run(words: Sequence[str], limit: float) -> None:
    """The worker; an interrupt of this process ends it as well."""
    command = [sys.executable, *_WORKER, *words]
    try:
        done = subprocess.run(
            command,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise MeasureError(f"took longer than {limit:.0f} s") from None
    if done.returncode < 0:
        raise MeasureError(f"ended by signal {-done.returncode}")
    if done.returncode:
        raise MeasureError((done.stderr.strip().splitlines() or ["failed"])[-1])


def _environment() -> Mapping[str, str]:
    """That of this process, where the worker finds this very package."""
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
