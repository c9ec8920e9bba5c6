"""How the compiler talks while it works; imports nothing else of the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Note: TypeAlias = Callable[[str], None]
"""Takes one line of ``--explain``: what matched, what was refused, and why."""

Progress: TypeAlias = Callable[[str, float], None]
"""Called at the start of each stage with its name and the seconds since the compilation began."""


def ignore_note(_line: str) -> None:
    """The ``Note`` that keeps nothing."""


def ignore_progress(_stage: str, _seconds: float) -> None:
    """The ``Progress`` that shows nothing."""
