"""How the commands write sizes and shapes."""

from __future__ import annotations

from collections.abc import Container, Sequence


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


def ms_text(seconds: float) -> str:
    """Milliseconds for people: ``12.35``, ``0.0043``."""
    milliseconds = seconds * 1e3
    return f"{milliseconds:.2f}" if milliseconds >= 10 else f"{milliseconds:.4f}"


def align(
    rows: Sequence[Sequence[str]],
    *,
    indent: str = "  ",
    gap: str = "  ",
    right: Container[int] = (),
) -> list[str]:
    """Lines with the columns of ``rows`` under each other; those in ``right`` end there."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return indent + gap.join(cells).rstrip()

    return [line(row) for row in rows]
