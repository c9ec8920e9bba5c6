"""Compiled models, each made once for all test processes of a run."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rten_aot
from rten_aot.runtime import Model
from tests.support.model_cache import cached
from tests.support.models import Case, ModelUnavailableError, rten_path

# As in RTEN_AOT_TEST_TARGET=x86-64-v3, to try what other machines get.
TARGET = os.environ.get("RTEN_AOT_TEST_TARGET", "llvm -mcpu=native")


@dataclass(frozen=True)
class Compiled:
    """A library, and what making it took."""

    library: Path
    seconds: float
    cpu_seconds: float


Compiler = Callable[[Case | str], Compiled]
Loader = Callable[[Compiled, int], Model]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    """Compiles a case for exactly its shapes, or a model named by a string with its own."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled"

    def compile_(wanted: Case | str) -> Compiled:
        name = wanted.model if isinstance(wanted, Case) else wanted
        shapes = wanted.shapes() if isinstance(wanted, Case) else None
        source = available(name)
        library = folder / f"{wanted}.so"
        facts = folder / f"{wanted}.json"

        def make(new: Path) -> None:
            facts.write_text(json.dumps(_measured(source, new, shapes)))

        cached(library, make)
        return Compiled(library, **json.loads(facts.read_text()))

    return compile_


def available(name: str) -> Path:
    """The model's .rten file; without PyPI the test is skipped, but fails in CI."""
    try:
        return rten_path(name)
    except ModelUnavailableError as err:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(err))


def _measured(source: Path, library: Path, shapes: Any) -> dict[str, float]:
    began, cpu = time.perf_counter(), _cpu_seconds()
    rten_aot.compile(source, library, target=TARGET, shapes=shapes)
    return {"seconds": time.perf_counter() - began, "cpu_seconds": _cpu_seconds() - cpu}


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


@pytest.fixture(scope="session")
def loaded() -> Iterator[Loader]:
    """Loads a library for a number of threads, once: a handle sees all the sizes of a model."""
    handles: dict[tuple[Path, int], Model] = {}

    def load(model: Compiled, threads: int) -> Model:
        key = (model.library, threads)
        if key not in handles:
            handles[key] = rten_aot.load(model.library, num_threads=threads)
        return handles[key]

    yield load
    for handle in handles.values():
        handle.close()
