"""Every size of the first operand free, the other operands part of the file: weights, as a rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.memory.tables import one_of_each
from tests.support.cases import Case, Mode, Suite

# The operator itself depends on this size: real or complex numbers.
KNOWN = {"STFT": [(0, 2)]}


def _cases() -> list[Case]:
    cases = [case for case in one_of_each("dynamic") if len(case.inputs) > 1]
    return [
        replace(
            case,
            constant=range(1, len(case.inputs)),
            fixed=KNOWN.get(case.op, []),
            modes=("dynamic",),
        )
        for case in cases
    ]


SUITE = Suite(_cases())


@pytest.mark.parametrize(("case", "mode"), SUITE.parameters())
def test_free_sizes(case: Case, mode: Mode) -> None:
    SUITE.check(case, mode)
