"""What all tests share: options, and where the tree is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write README's table of operators anew instead of comparing with it",
    )
    parser.addoption(
        "--guarded",
        action="store_true",
        help="compile and run models with pages that cannot be accessed around their buffers",
    )


@pytest.fixture(scope="session", autouse=True)
def guard(pytestconfig: pytest.Config) -> Iterator[None]:
    """Guards all models if ``--guarded`` is given."""
    context = nullcontext()
    if pytestconfig.getoption("--guarded"):
        from tests.support.guard import guarded  # it imports TVM, which not all tests need

        context = guarded()
    with context:
        yield


@pytest.fixture(scope="session")
def update_golden(pytestconfig: pytest.Config) -> bool:
    """Whether expected files are to be written, not compared with."""
    return bool(pytestconfig.getoption("--update-golden"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the tree."""
    return Path(__file__).resolve().parents[1]
