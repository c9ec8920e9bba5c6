"""Operators and models between pages that cannot be accessed: nothing outside a buffer is touched.

``pytest --guarded PATH`` runs other tests this way.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import rten_aot
from tests.memory.tables import FILES, one_of_each
from tests.models.conftest import TARGET, available
from tests.models.test_end_to_end import assert_matches as assert_model_matches
from tests.ops import test_control_flow, test_loop, test_sequence
from tests.support import models
from tests.support.cases import Case, Mode, assert_matches, outcomes, run_case
from tests.support.guard import guarded


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_one_case_of_each_operator(mode: Mode) -> None:
    cases = one_of_each(mode)
    with guarded():
        results = outcomes(cases, mode)
    for case in cases:
        outcome = results[case.id]
        assert not isinstance(outcome, Exception), f"{case.op}: {outcome}"
        for run in outcome:
            for got, want in zip(run, case.want(), strict=True):
                assert_matches(got, want, case.tolerance)


@pytest.mark.parametrize(
    "test",
    [
        test_control_flow.test_results_of_sizes_that_differ_keep_their_memory,
        test_loop.test_a_number_of_iterations_that_is_an_input,
        test_loop.test_a_condition_that_the_body_computes,
        test_sequence.test_build_change_and_join,
    ],
    ids=lambda test: test.__name__,
)
def test_branches_loops_and_sequences(test: Callable[[Path], None], tmp_path: Path) -> None:
    with guarded():
        test(tmp_path)


def test_a_large_weight() -> None:
    rng = np.random.default_rng(0)
    operands = [rng.standard_normal(s, np.float32) for s in ((3, 512), (512, 513))]
    case = Case("c", "MatMul", operands, np.matmul, tolerance="approximate", constant=(1,))
    with guarded():
        (result,) = run_case(case, threads=2)
    assert_matches(result, case.want()[0], case.tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_all_tests_of_operators(file: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--guarded", "-p", "no:cacheprovider", str(file)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.models
@pytest.mark.parametrize("free", [False, True], ids=["fixed", "free"])
@pytest.mark.parametrize(
    "case",
    [
        models.Case("ppocr_det", (1, 3, 64, 96)),
        models.Case("ppocr_rec", (1, 3, 48, 64)),
        models.Case("silero", (1, 576)),
        models.Case("minilm", (2, 9)),
    ],
    ids=str,
)
def test_models(case: models.Case, free: bool, tmp_path: Path) -> None:
    feed = case.inputs("random")
    want = models.reference(case.model, feed)
    with guarded():
        library = rten_aot.compile(
            available(case.model),
            tmp_path / "model.so",
            target=TARGET,
            shapes=None if free else case.shapes(),
        )
        for threads in (1, 2):
            model = rten_aot.load(library, num_threads=threads)
            got = model.run(models.rten_inputs(feed))
            assert_model_matches(list(got.values()), want)
