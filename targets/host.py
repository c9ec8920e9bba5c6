"""What the computer that compiles can do, as its operating system says."""

from __future__ import annotations

import functools
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from tvm.target import codegen

_ARCHES = {"amd64": "x86_64", "arm64": "aarch64", "armv7l": "arm", "armv8l": "arm"}


def arch() -> str:
    """The architecture in LLVM's spelling, e.g. ``x86_64``."""
    name = platform.machine().lower()
    return _ARCHES.get(name, name)


def triple() -> str:
    """The target triple of this computer."""
    if sys.platform == "darwin":
        return "arm64-apple-macosx11.0.0" if arch() == "aarch64" else "x86_64-apple-macosx11.0.0"
    if arch() == "arm":
        return "armv7-unknown-linux-gnueabihf"
    return f"{arch()}-unknown-linux-gnu"


@functools.cache
def cpu_name() -> str:
    """LLVM's name of the CPU."""
    return str(codegen.llvm_get_system_cpu())


def features(table: Mapping[str, str]) -> frozenset[str]:
    """Those features of the table (LLVM's name to the kernel's flag) that the CPU has."""
    flags = _flags()
    return frozenset(name for name, flag in table.items() if flag in flags)


@functools.cache
def _flags() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return frozenset(found.group(1).split()) if found else frozenset()


@functools.cache
def caches() -> tuple[int, int] | None:
    """Level 1 data cache and level 2 cache of one core in KiB; None if they are not told."""
    sizes: dict[int, int] = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level = int((folder / "level").read_text())
            kind = (folder / "type").read_text().strip()
            size = int((folder / "size").read_text().strip().removesuffix("K"))
            cores = _count_cores((folder / "shared_cpu_list").read_text().strip())
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and level in (1, 2):
            # Two threads of one core count as one core.
            sizes[level] = size if level == 1 else size // max(1, cores // 2)
    return (sizes[1], sizes[2]) if 1 in sizes and 2 in sizes else None


def _count_cores(text: str) -> int:
    """``0-1,8`` -> 3."""
    total = 0
    for part in text.split(","):
        first, _, last = part.partition("-")
        total += int(last or first) - int(first) + 1
    return total
