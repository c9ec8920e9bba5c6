"""What convolutions and matrix products are to those who choose their loops, and how to name them.

The name is the key under which a choice is recorded. It holds the sizes that loops depend on, in
the order of the kernels' layouts (images are batch, height, width); ``?`` is a size that only a run
knows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Sizes: TypeAlias = tuple[int | None, ...]
"""Sizes in order; None for one that only a run knows."""

_WINDOW = "{kernel:2} strides {strides:2} dilations {dilations:2} pads {pads:4?}"
_FORMS: Mapping[str, str] = {
    "conv": "conv {channels:1}->{out:1} " + _WINDOW + " groups {groups:1} image {image:3?}",
    "depthwise": "depthwise {channels:1}->{out:1} " + _WINDOW + " image {image:3?}",
    "gemm": "gemm {sizes:3?}",
    "matmul": "matmul {left:+?} by {right:+?}",
    "matmul_transposed": "matmul {left:+?} by transposed {right:+?}",
    "attention": "attention {queries:+?} by {keys:1?} keys of {channels:1} channels",
}
"""How keys look, by kind of problem: each field has a number of sizes (``+`` is two or more), and a
``?`` if a run may be the first to know them. A ``gemm`` has a constant right factor, and is named
by its rows, inner size and columns; a ``matmul`` by the shapes of both factors, as they are stored;
an attention by the shape of its queries besides.
"""

_FIELD = re.compile(r"\{(\w+):([\d+])(\??)\}")


def _pattern(form: str) -> re.Pattern[str]:
    def field(match: re.Match[str]) -> str:
        name, count, is_free = match.groups()
        size = r"(?:-?\d{1,9}|\?)" if is_free else r"[1-9]\d{0,8}"
        more = "+" if count == "+" else f"{{{int(count) - 1}}}"
        return f"(?P<{name}>{size}(?:x{size}){more})"

    return re.compile(_FIELD.sub(field, form))


_PATTERNS = {kind: _pattern(form) for kind, form in _FORMS.items()}


@dataclass(frozen=True)
class Problem:
    """A convolution or matrix product of float32 values, with the sizes that its form names."""

    kind: str
    sizes: Mapping[str, Sizes]

    @property
    def key(self) -> str:
        """The name, e.g. ``gemm 128x384x1536``."""
        return _FIELD.sub(lambda match: _text(self.sizes[match[1]]), _FORMS[self.kind])

    @classmethod
    def parse(cls, key: str) -> Problem | None:
        """The problem with this key; None if there is none."""
        for kind, pattern in _PATTERNS.items():
            if match := pattern.fullmatch(key):
                return cls(kind, {name: _sizes(text) for name, text in match.groupdict().items()})
        return None

    @property
    def columns(self) -> int | None:
        """Columns of the product, those of one group; channels of a depthwise one; keys."""
        match self.kind:
            case "conv":
                return self._fixed("out")[0] // self._fixed("groups")[0]
            case "depthwise":
                return self._fixed("out")[0]
            case "gemm":
                return self.sizes["sizes"][2]
            case "matmul":
                return self.sizes["right"][-1]
            case "attention":
                return self.sizes["keys"][0]
        return self.sizes["right"][-2]

    @property
    def rows(self) -> int | None:
        """Rows of the product: pixels, or rows of all matrices."""
        match self.kind:
            case "conv" | "depthwise":
                return total([self.sizes["image"][0], *self._result()])
            case "gemm":
                return self.sizes["sizes"][0]
            case "attention":
                return total(self.sizes["queries"][:-1])
        return total(self.sizes["left"][:-1])

    @property
    def depth(self) -> int | None:
        """Terms of a sum of a product with a constant right factor."""
        return self.sizes["sizes"][1]

    @property
    def tiles(self) -> int | None:
        """Pieces of 2x2 pixels of a convolution's result."""
        halves = [None if size is None else -(-size // 2) for size in self._result()]
        return total([self.sizes["image"][0], *halves])

    @property
    def allows_winograd(self) -> bool:
        """Whether Winograd's minimal filtering can compute it."""
        plain = {"kernel": (3, 3), "strides": (1, 1), "dilations": (1, 1), "groups": (1,)}
        return self.kind == "conv" and all(self.sizes[name] == s for name, s in plain.items())

    def _result(self) -> list[int | None]:
        """Height and width of a convolution's result."""
        sizes: list[int | None] = []
        for d in (0, 1):
            parts = [self.sizes["image"][1 + d], self.sizes["pads"][d], self.sizes["pads"][2 + d]]
            kernel, stride, dilation = (
                self._fixed(name)[d] for name in ("kernel", "strides", "dilations")
            )
            reach = (kernel - 1) * dilation + 1
            known = [part for part in parts if part is not None]
            count = max(0, (sum(known) - reach) // stride + 1)
            sizes.append(count if len(known) == len(parts) else None)
        return sizes

    def _fixed(self, name: str) -> list[int]:
        return [size for size in self.sizes[name] if size is not None]


def total(sizes: Sequence[int | None]) -> int | None:
    """The product of the sizes if all are known."""
    known = [size for size in sizes if size is not None]
    return math.prod(known) if len(known) == len(sizes) else None


def _text(sizes: Sizes) -> str:
    return "x".join("?" if size is None else str(size) for size in sizes)


def _sizes(text: str) -> Sizes:
    return tuple(None if size == "?" else int(size) for size in text.split("x"))
