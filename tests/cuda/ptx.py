"""What kernels do with what they have in shared memory, read from PTX."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_LOAD = re.compile(r"\bld\.shared(?:\.v(\d))?\.\w(\d+)\s+\{?([^}\[]*)")
_MULTIPLY_ADD = re.compile(r"\b(?:fma\.rn\.f32|mad\.lo\.s32)\s+(\S+), (\S+), (\S+), (\S+);")


@dataclass(frozen=True)
class Products:
    """The products of factors in shared memory, in the loop that makes them.

    Where the compiler left no loop it is the whole kernel.
    """

    sums: int
    """What products are added to, in registers."""
    products: int
    """Multiplications that go into the sums."""
    loads: int
    """Instructions that load from shared memory, whatever their width."""
    narrowest: int
    """The bytes that the narrowest of these loads brings; 0 without any."""
    loops: int
    """Loops that hold the products: 1, or 0 if there is none."""


def kernels(text: str) -> dict[str, list[str]]:
    """The lines of each kernel, by its name."""
    found = re.split(r"\.visible \.entry (\w+)\(", text)
    return {n: part.splitlines() for n, part in zip(found[1::2], found[2::2], strict=True)}


def read_products(lines: Sequence[str]) -> Products:
    """What a kernel multiplies, in the innermost loop that has most of it."""
    loops = [_products(lines[first : last + 1], 1) for first, last in _inner_loops(lines)]
    best = max(loops, key=lambda p: p.products, default=None)
    return best if best is not None and best.products else _products(lines, 0)


def _inner_loops(lines: Sequence[str]) -> list[tuple[int, int]]:
    """The first and last lines of loops that have no loops in them."""
    labels = {m[1]: i for i, line in enumerate(lines) if (m := re.match(r"(\$\w+):", line))}
    spans = set()
    for i, line in enumerate(lines):
        branch = re.search(r"\bbra(?:\.uni)?\s+(\$\w+);", line)
        if branch and labels[branch[1]] <= i:
            spans.add((labels[branch[1]], i))
    return [s for s in spans if not any(o != s and s[0] <= o[0] and o[1] <= s[1] for o in spans)]


def _products(lines: Sequence[str], loops: int) -> Products:
    loads = [m for line in lines if (m := _LOAD.search(line))]
    loaded = {word.strip() for load in loads for word in load[3].split(",")}
    added = {
        m[1]: m[4] for line in lines if (m := _MULTIPLY_ADD.search(line)) and {m[2], m[3]} <= loaded
    }
    widths = [int(load[1] or 1) * int(load[2]) // 8 for load in loads]
    return Products(_count_sums(added), len(added), len(loads), min(widths, default=0), loops)


def _count_sums(added: Mapping[str, str]) -> int:
    """Sums of products, by what each is added to: chains, or rings if a loop goes on with them."""
    sums, seen = 0, set[str]()
    for start in added:
        path, at = [], start
        while at in added and at not in seen:
            seen.add(at)
            path.append(at)
            at = added[at]
        # A new sum begins somewhere, or comes back to where it began.
        sums += at not in added or at in path
    return sums
