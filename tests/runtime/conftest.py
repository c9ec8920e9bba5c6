"""The library of the model written by hand, linked once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rten_aot.runtime import Model, load
from tests.runtime.fake_library import build_fake


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_fake(tmp_path_factory.mktemp("fake"))


@pytest.fixture
def model(fake: Path) -> Iterator[Model]:
    with load(fake, num_threads=2) as model:
        yield model
