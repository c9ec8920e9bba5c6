"""What all tests share: the option that rewrites expected files, and where the tree is."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write README's table of operators anew instead of comparing with it",
    )


@pytest.fixture(scope="session")
def update_golden(pytestconfig: pytest.Config) -> bool:
    """Whether expected files are to be written, not compared with."""
    return bool(pytestconfig.getoption("--update-golden"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the tree."""
    return Path(__file__).resolve().parents[1]
