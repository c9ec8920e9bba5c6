"""ONNX's own node tests once more: the .rten graph back to ONNX, and ONNX Runtime's results."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import pytest

from rten_aot.interop.export import to_onnx
from rten_aot.interop.reference import run_reference
from tests.onnx_suite.exceptions import read_exceptions
from tests.onnx_suite.node_cases import NodeCase, all_cases, as_rten, convert, judged

LISTED = read_exceptions()
SAMPLE = 10

# What ONNX Runtime does not do though the model says it.
NOT_RUN = {
    "test_convinteger_with_padding": "has no kernel for a vector of zero points",
    "test_stft": "is less exact",
    "test_stft_with_window": "is less exact",
}
# onnx infers another size of ceil_mode than its own definition, to which the file holds.
NOT_CHECKED = (
    "test_averagepool_2d_ceil_last_window_starts_on_pad",
    "test_maxpool_2d_ceil_output_size_reduce_by_one",
)


def check(cases: Sequence[NodeCase]) -> None:
    wrong = [f"{case.name}: {failure}" for case in cases if (failure := _failure(case))]
    assert not wrong, "\n".join(wrong)


def _failure(case: NodeCase) -> str:
    try:
        model = convert(case)
        if case.name not in NOT_CHECKED:
            onnx.checker.check_model(to_onnx(model), full_check=True)
        results = run_reference(model, [as_rten(x) for x in case.inputs], threads=1)
    except Exception as err:
        return str(err)
    outcome = judged(case, results)
    return "" if outcome.stage == "pass" else outcome.message


def kept_cases() -> list[NodeCase]:
    return [c for c in all_cases() if c.name not in LISTED and c.name not in NOT_RUN]


def test_sample() -> None:
    check(kept_cases()[::SAMPLE])


@pytest.mark.slow
def test_all() -> None:
    check(kept_cases())
