"""``python -m rten_aot.tuner.worker REQUEST.json``: runs two libraries in turn, in a process apart.

It loads nothing of the compiler. The request is that of ``measure.Request``; the times go to its
``output``, an .npz file: ``seconds`` is ``[libraries, runs]``, ``steps`` are nanoseconds
``[libraries, runs, steps]``, empty for libraries that do not time their steps.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from rten_aot.runtime import Model, load

_WARM_UP_SECONDS = 0.1


def main(path: str) -> None:
    """Measure as the file says."""
    request = json.loads(Path(path).read_bytes())
    models = [load(library, num_threads=request["threads"]) for library in request["libraries"]]
    with np.load(request["inputs"]) as arrays:
        inputs = [arrays[f"arr_{i}"] for i in range(len(arrays.files))]
    for model in models:
        _warm_up(model, inputs)
    seconds: list[list[float]] = [[] for _ in models]
    steps: list[list[list[int]]] = [[] for _ in models]
    end = time.perf_counter() + request["seconds"]
    order = list(range(len(models)))
    while len(seconds[0]) < request["runs"] or time.perf_counter() < end:
        for i in order:
            start = time.perf_counter()
            models[i](*inputs)
            seconds[i].append(time.perf_counter() - start)
            if request["profile"]:
                taken = models[i].take_profile().steps
                steps[i].append([step.nanoseconds for step in taken])
        order.reverse()  # neither profits from coming first
    np.savez(request["output"], seconds=np.array(seconds), steps=np.array(steps, np.int64))


def _warm_up(model: Model, inputs: list[Any]) -> None:
    end = time.perf_counter() + _WARM_UP_SECONDS
    model(*inputs)
    while time.perf_counter() < end:
        model(*inputs)
    if model.metadata.get("profile"):
        model.take_profile()


if __name__ == "__main__":
    main(sys.argv[1])
