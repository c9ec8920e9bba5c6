"""One case of each operator that the tables of tests/ops have."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path

from tests import ops
from tests.support.cases import Case, Mode

FILES = sorted(Path(ops.__path__[0]).glob("test_*.py"))


def one_of_each(mode: Mode) -> list[Case]:
    """The first case of each operator, named like it."""
    found: dict[str, Case] = {}
    for file in FILES:
        module = importlib.import_module(f"tests.ops.{file.stem}")
        if hasattr(module, "SUITE"):
            for case in module.SUITE.cases(mode):
                found.setdefault(case.op, dataclasses.replace(case, id=case.op))
    return list(found.values())
