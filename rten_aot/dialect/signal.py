"""Operators on signals."""

from __future__ import annotations

from tvm import te
from tvm.tirx import Expr

from rten_aot.dialect.loops import int64
from rten_aot.dialect.registry import Pattern, define


@define("frames", pattern=Pattern.INJECTIVE)
def frames(x: te.Tensor, window: te.Tensor, count: list[Expr], step: list[Expr]) -> te.Tensor:
    """Overlapping parts of a signal, each times ``window``.

    ``x`` is [batch, length, channels]; part ``f`` begins at ``f * step[0]`` and there are
    ``count[0]`` of them, all inside the signal. The result is [batch, count, window * channels].
    """
    batch, _, channels = x.shape
    size = window.shape[0] * channels

    def element(b: Expr, f: Expr, i: Expr) -> Expr:
        k, c = (i, int64(0)) if _is_one(channels) else (i // channels, i % channels)
        return x(b, f * step[0] + k, c) * window(k)

    return te.compute([batch, count[0], size], element, name="frames")


def _is_one(size: Expr) -> bool:
    return getattr(size, "value", None) == 1
