"""What machines are, and how kernels are scheduled on them."""

from __future__ import annotations

if __name__ == "targets":
    raise ImportError("import rten_aot.targets")

from rten_aot.targets.base import Machine, Work
from rten_aot.targets.common.schedule import schedule
from rten_aot.targets.common.work import work
from rten_aot.targets.levels import get_machines, packing_machine
from rten_aot.targets.machines import descriptions, get_machine, names

__all__ = [
    "Machine",
    "Work",
    "descriptions",
    "get_machine",
    "get_machines",
    "names",
    "packing_machine",
    "schedule",
    "work",
]
