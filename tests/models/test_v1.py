"""Real models as version 1 files: the same numbers, and the same library but for what it names."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import rten_aot
from rten_aot.format import read_model
from tests.models.conftest import TARGET, available
from tests.support import models
from tests.support.model_cache import check_run
from tests.support.models import MODELS, Case
from tests.support.rten_writer import write_model

# Models that are tested by default.
QUICK = {"silero_ifless"}


def converted(name: str, path: Path) -> Path:
    """The model as rten-convert writes it in version 1."""
    command = [sys.executable, "-m", "rten_convert.converter", "--v1", str(models.onnx_path(name))]
    check_run([*command, str(path)], f"cannot convert {name}")
    return path


def library(source: Path, case: Case) -> Path:
    """A library whose name is the same for every source: it is part of what is in it."""
    folder = source.parent / source.stem
    folder.mkdir()
    return rten_aot.compile(source, folder / "model.so", target=TARGET, shapes=case.shapes())


def answers(path: Path, case: Case) -> list[bytes]:
    with rten_aot.load(path, num_threads=2) as model:
        results = model.run(models.rten_inputs(case.inputs("realistic")))
        return [np.ascontiguousarray(array).tobytes() for array in results.values()]


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in QUICK else pytest.mark.models) for n in MODELS],
)
def test_both_versions_of_a_model(name: str, tmp_path: Path) -> None:
    case = Case(name, MODELS[name].static[0])
    second = available(name)
    first = converted(name, tmp_path / "v1.rten")
    one, two = read_model(first), read_model(second)
    assert (one.format, two.format) == ("rten-v1", "rten-v2")
    (tmp_path / "v2.rten").symlink_to(second)
    made = [library(tmp_path / f"{version}.rten", case) for version in ("v1", "v2")]
    assert answers(made[0], case) == answers(made[1], case)
    # Libraries of hundreds of megabytes are not kept.
    texts = [path.read_bytes() for path in made]
    for path in (*made, first):
        path.unlink()
    facts = [(model.sha256.encode(), model.format.encode()) for model in (one, two)]
    for own, other in zip(*facts, strict=True):
        assert texts[0].count(own) == 1
        texts[0] = texts[0].replace(own, other)
    assert texts[0] == texts[1]


def test_a_model_that_is_written_anew(tmp_path: Path) -> None:
    """By a writer of our own, with its mark and, in version 2, weights in or beside the graph."""
    case = Case("silero_ifless", MODELS["silero_ifless"].static[0])
    graph = read_model(available(case.model)).graph
    libraries = []
    for label, options in (
        ("v1", {"version": 1}),
        ("v2", {"version": 2}),
        ("inline", {"version": 2, "external_data": False}),
    ):
        path = write_model(graph, tmp_path / f"{label}.rten", **options)  # type: ignore[arg-type]
        libraries.append(library(path, case))
    first, *others = [answers(path, case) for path in libraries]
    assert all(other == first for other in others)
