"""Resampling of a grid (ONNX Resize and Upsample, modes nearest and linear)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import te, tirx

from rten_aot.dialect.broadcast import index, static
from rten_aot.dialect.registry import Layout, Pattern, define
from rten_aot.errors import InternalError

Sizes = Sequence[tirx.Expr]
Load = Callable[[tuple[tirx.Expr, ...]], tirx.Expr]


def _f32(value: float) -> tirx.Expr:
    return tirx.const(value, "float32")


@dataclass(frozen=True)
class _Axis:
    """One resampled axis: positions of the result on the source."""

    source: tirx.Expr
    result: tirx.Expr
    scale: float | tirx.Expr | None
    """Result over source as the model states it; None: the quotient of the sizes."""
    coordinates: str

    def unscaled(self, position: tirx.Expr) -> tirx.Expr:
        """A float32 position on the result as one on the source.

        It is rounded once only, so that what is whole in exact arithmetic stays whole.
        """
        if self.scale is None:
            source, result = tirx.Cast("float32", self.source), tirx.Cast("float32", self.result)
            return position * source / result
        return position / (_f32(self.scale) if isinstance(self.scale, float) else self.scale)

    def coordinate(self, at: tirx.Expr) -> tirx.Expr:
        """The float32 position on the source of element ``at`` of the result."""
        # TVM 0.27 fails on a quotient of two converted integers that is used more than once; the
        # absolute value, which changes nothing, hides that the dividend is one.
        i = tirx.abs(tirx.Cast("float32", at))
        match self.coordinates:
            case "half_pixel":
                return self.unscaled(i + _f32(0.5)) - _f32(0.5)
            case "asymmetric":
                return self.unscaled(i)
            case "pytorch_half_pixel":
                centred = self.unscaled(i + _f32(0.5)) - _f32(0.5)
                return tirx.Select(self.result > index(1), centred, _f32(0.0))
            case "align_corners":
                # A single element lies on the first one.
                steps = tirx.max(self.result - index(1), index(1))
                last = tirx.Cast("float32", self.source - index(1))
                return i * last / tirx.Cast("float32", steps)
        raise InternalError(f"coordinates {self.coordinates!r}")

    def clamped(self, position: tirx.Expr) -> tirx.Expr:
        """The nearest int64 position that exists."""
        return tirx.max(index(0), tirx.min(self.source - index(1), position))


def _round(value: tirx.Expr, mode: str) -> tirx.Expr:
    match mode:
        case "floor":
            return tirx.floor(value)
        case "ceil":
            return tirx.ceil(value)
        case "round_prefer_floor":
            return tirx.ceil(value - _f32(0.5))
        case "round_prefer_ceil":
            return tirx.floor(value + _f32(0.5))
    raise InternalError(f"rounding {mode!r}")


def _nearest(load: Load, axes: dict[int, _Axis], i: tuple[tirx.Expr, ...], mode: str) -> tirx.Expr:
    where = list(i)
    for d, axis in axes.items():
        rounded = tirx.Cast("int64", _round(axis.coordinate(i[d]), mode))
        where[d] = axis.clamped(rounded)
    return load(tuple(where))


def _linear(load: Load, axes: dict[int, _Axis], i: tuple[tirx.Expr, ...]) -> tirx.Expr:
    """Interpolates along one axis after the other."""
    if not axes:
        return load(i)
    d, axis = next(iter(axes.items()))
    others = {k: v for k, v in axes.items() if k != d}
    position = axis.coordinate(i[d])
    first = tirx.floor(position)
    low = tirx.Cast("int64", first)
    # Beyond the edges both neighbours are the edge, whatever their weights.
    weight = position - first

    def at(place: tirx.Expr) -> tirx.Expr:
        return _linear(load, others, (*i[:d], axis.clamped(place), *i[d + 1 :]))

    return at(low) * (_f32(1.0) - weight) + at(low + index(1)) * weight


def _resample(
    x: te.Tensor,
    sizes: Sizes,
    axes: Sequence[int],
    mode: str,
    coordinates: str,
    nearest: str,
    scales: Sequence[float | tirx.Expr] | None,
) -> te.Tensor:
    shape = list(x.shape)
    resampled: dict[int, _Axis] = {}
    for n, (d, size) in enumerate(zip(axes, sizes, strict=True)):
        scale = None if scales is None else scales[n]
        shape[d] = size
        unscaled = scale is None or (isinstance(scale, float) and scale == 1.0)
        if static(size) is None or static(size) != static(x.shape[d]) or not unscaled:
            resampled[d] = _Axis(x.shape[d], size, scale, coordinates)

    def element(*i: tirx.Var) -> tirx.Expr:
        if mode == "nearest":
            return _nearest(lambda where: x(*where), resampled, i, nearest)
        return _linear(lambda where: x(*where), resampled, i)

    return te.compute(tuple(shape), element, name="resize")


@define("resize", layout=Layout.SPATIAL, pattern=Pattern.INJECTIVE)
def resize(
    x: te.Tensor,
    sizes: Sizes,
    *,
    mode: str,
    coordinates: str,
    nearest: str = "round_prefer_floor",
    scales: list[float] | None = None,
    layout: str = "NCHW",
) -> te.Tensor:
    """``x`` resampled along all axes but batch and channels to ``sizes``: ONNX Resize.

    ``mode`` is "nearest" (rounded as ``nearest`` says) or "linear"; ``coordinates`` is
    "half_pixel", "asymmetric", "align_corners" or "pytorch_half_pixel". Where the model gives
    ``scales``, coordinates are divided by them and not by the quotient of the sizes.
    """
    first = 2 if layout == "NCHW" else 1
    axes = range(first, first + len(sizes))
    return _resample(x, sizes, axes, mode, coordinates, nearest, scales)


@define("resize_axes", pattern=Pattern.INJECTIVE)
def resize_axes(
    x: te.Tensor,
    sizes: Sizes,
    *factors: te.Tensor,
    axes: list[int],
    mode: str,
    coordinates: str,
    nearest: str = "round_prefer_floor",
    scales: list[float] | None = None,
) -> te.Tensor:
    """As ``resize``, along ``axes``, which may be any.

    The scales of all axes may also come in the tensor ``factors``.
    """
    given: Sequence[float | tirx.Expr] | None = scales
    if factors:
        given = [factors[0](index(axis)) for axis in axes]
    return _resample(x, sizes, axes, mode, coordinates, nearest, given)
