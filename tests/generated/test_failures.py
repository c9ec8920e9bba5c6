"""Generated operands that only a run can find wrong: it must say so and leave the model usable."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import rten_aot
from tests.generated.failures import FAILURES, Failure
from tests.generated.generator import Generator
from tests.support.cases import Array, Mode, convert

COUNT = 50
SEEDS = (1, 2)


def missed(failures: Sequence[Failure], mode: Mode, folder: Path) -> list[str]:
    """What did not fail as it must, a line each."""
    failures = [f for f in failures if mode in f.case.modes]
    cases = [f.case for f in failures]
    path = folder / "model.rten"
    convert(cases, mode, path)
    library = rten_aot.compile(path, folder / "model.so", target="llvm -mcpu=native")
    right: dict[str, Array] = {}
    for i, case in enumerate(cases):
        right |= _feeds(i, failures[i], mode, case.inputs)
    wrong = []
    with rten_aot.load(library, num_threads=2) as model:
        expected = model.run(right)
        for i, failure in enumerate(failures):
            feeds = right | _feeds(i, failure, mode, failure.wrong)
            try:
                model.run(feeds)
                error = "nothing"
            except (rten_aot.ModelRunError, rten_aot.InputError) as err:
                error = str(err)
            if f'"{failure.case.id}" ({failure.case.op})' not in error:
                shapes = [None if x is None else x.shape for x in failure.wrong]
                wrong.append(f"{failure.case.id}: {failure.case.op} {shapes}: {error}")
        for name, y in model.run(right).items():
            np.testing.assert_array_equal(y, expected[name])
    return wrong


def _feeds(
    i: int, failure: Failure, mode: Mode, inputs: Sequence[Array | None]
) -> dict[str, Array]:
    stored = failure.case.stored(mode)
    return {f"c{i}_x{j}": x for j, x in enumerate(inputs) if x is not None and j not in stored}


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", ["static", "dynamic"])
@pytest.mark.parametrize("kind", FAILURES)
def test_failures(kind: str, mode: Mode, seed: int, tmp_path: Path) -> None:
    g = Generator(seed)
    failures = [FAILURES[kind](g, f"{kind}-{i}") for i in range(COUNT)]
    if not any(mode in f.case.modes for f in failures):
        pytest.skip("there is nothing wrong with fixed sizes")
    wrong = missed(failures, mode, tmp_path)
    assert not wrong, f"{len(wrong)} do not fail:\n" + "\n".join(wrong)
