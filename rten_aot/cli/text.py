"""How the commands write sizes and shapes."""

from __future__ import annotations

from collections.abc import Sequence


def bytes_text(count: int) -> str:
    """A number of bytes for people: ``17.8 MB``."""
    size = float(count)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def shape_text(shape: Sequence[int | str | None] | None) -> str:
    """A shape for people: ``[1, 3, h, ?]``; ``[…]`` if even the rank is unknown."""
    if shape is None:
        return "[…]"
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def align(rows: Sequence[Sequence[str]], *, indent: str = "  ", gap: str = "  ") -> list[str]:
    """Lines with the columns of ``rows`` under each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        indent
        + gap.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
