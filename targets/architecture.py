"""What a table of machines says: an architecture, and the names that mean a machine of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

CacheSizes = tuple[int, int]
"""Level 1 data and level 2 caches of one core, or its share of them, in KiB."""


@dataclass(frozen=True)
class VectorUnit:
    """What the vector instructions of a CPU are to the schedules."""

    bits: int
    registers: int
    fma: bool
    halves: bool = False
    """See ``Machine.halves``."""


@dataclass(frozen=True)
class InOrder:
    """A CPU whose instructions start one after the other."""

    scheduled_as: str | None = None
    """See ``Machine.scheduled_as``."""
    groups_loads: bool = False
    """See ``Machine.groups_loads``."""
    attrs: tuple[str, ...] = ()
    """LLVM features that make code faster on it, and are no features of the CPU."""


@dataclass(frozen=True)
class Named:
    """A machine that can be asked for by its name alone."""

    text: str
    """What it is, in a few words."""
    cpu: str
    """LLVM's name of the CPU."""
    source: str
    """Where the facts are from."""
    attrs: tuple[str, ...] = ()
    """LLVM features on top of the CPU's, each ``+name`` or ``-name``."""
    caches: CacheSizes | None = None
    """None: those of the CPU."""
    cores: int | None = None
    """None: it differs."""


@dataclass(frozen=True)
class Architecture:
    """The machines of one instruction set."""

    name: str
    """As the first part of a triple, e.g. ``x86_64``."""
    first: str
    """A pattern for the first part of the triples that mean this architecture."""
    triple: str
    """The triple of the names."""
    baseline: str
    """LLVM's name of the CPU that is meant where none is given."""
    named: Mapping[str, Named]
    caches: Mapping[str, CacheSizes]
    """By LLVM's name of the CPU, ``baseline`` among them, which stands for those not listed."""
    features: Mapping[str, str]
    """Features that the code generator may use by itself and that some CPUs of the architecture
    lack: LLVM's name to the flag in Linux's /proc/cpuinfo."""
    vector_unit: Callable[[frozenset[str]], VectorUnit]
    """By the features that code may use, of those in ``features``."""
    attrs: tuple[str, ...] = ()
    """LLVM features that every CPU here has, whatever LLVM's description of it says."""
    needed: tuple[str, ...] = ()
    """LLVM features without which it cannot generate code for the calling convention, and fails in
    ways that nothing can catch."""
    in_order: Mapping[str, InOrder] = field(default_factory=dict)
    """By LLVM's name of the CPU: those that products are computed for in another way."""
    levels: tuple[str, ...] = field(default=())
    """LLVM's general CPUs from the best to the one that every CPU can stand in for."""
    abi: str | None = None
    """See ``Machine.abi``."""

    def has_triple(self, triple: str) -> bool:
        """Whether the triple means this architecture."""
        return re.fullmatch(self.first, triple.split("-", 1)[0].lower()) is not None
