"""The tables of tests/ops, and one case of each operator in them."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path

from tests import ops
from tests.support.cases import Case, Mode, Suite

FILES = sorted(Path(ops.__path__[0]).glob("test_*.py"))


SUITES: dict[str, Suite] = {
    file.stem.removeprefix("test_"): module.SUITE
    for file in FILES
    if hasattr(module := importlib.import_module(f"tests.ops.{file.stem}"), "SUITE")
}
"""The tables, by the names of their files."""


def one_of_each(mode: Mode) -> list[Case]:
    """The first case of each operator, named like it."""
    found: dict[str, Case] = {}
    for suite in SUITES.values():
        for case in suite.cases(mode):
            found.setdefault(case.op, dataclasses.replace(case, id=case.op))
    return list(found.values())
