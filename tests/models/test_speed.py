"""How long a run takes beside ONNX Runtime: a table, and a limit that catches what is broken."""

from __future__ import annotations

import time
from collections.abc import Callable

import onnxruntime
import pytest

from tests.models.conftest import Compiler, Loader
from tests.support import models
from tests.support.models import CASES, Case

WORST = 3.0
"""Times ONNX Runtime's time that a model may take."""
SLACK = 0.2e-3
"""Seconds that do not count: a call costs something even where the model does nothing."""


def best(run: Callable[[], object], seconds: float = 0.5) -> float:
    """The shortest of the runs that fit into some time."""
    run()
    end = time.perf_counter() + seconds
    shortest = float("inf")
    while time.perf_counter() < end or shortest == float("inf"):
        began = time.perf_counter()
        run()
        shortest = min(shortest, time.perf_counter() - began)
    return shortest


@pytest.mark.models
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_speed(
    case: Case,
    threads: int,
    compiled: Compiler,
    loaded: Loader,
) -> None:
    feed = case.inputs("realistic")
    model, inputs = loaded(compiled(case), threads), models.rten_inputs(feed)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        models.onnx_path(case.model), options, providers=["CPUExecutionProvider"]
    )
    ours, theirs = best(lambda: model.run(inputs)), best(lambda: session.run(None, feed))
    print(f"\n{case}, {threads} threads: {ours * 1e3:.2f} ms, ONNX Runtime {theirs * 1e3:.2f} ms")
    assert ours <= WORST * theirs + SLACK
