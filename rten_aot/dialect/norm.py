"""Normalisations: every one works on rows whose statistics are stages of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import te, tirx

from rten_aot.dialect import vector_math
from rten_aot.dialect.broadcast import broadcast_indices
from rten_aot.dialect.reduce import element_count, over_count, reduce_axes, reduce_over
from rten_aot.dialect.registry import Layout, define
from rten_aot.dialect.scalar import number, subtract


@define("softmax", layout=Layout.AXES)
def softmax(x: te.Tensor, *, axis: int) -> te.Tensor:
    """e^x over its sum along an axis; NaN where all elements are -inf."""
    _, raised, total = _raised(x, axis)
    at = _statistic_index(axis)
    one = tirx.const(1.0, "float32")  # the total is at least 1: its reciprocal is exact enough
    return te.compute(tuple(x.shape), lambda *i: raised(*i) * (one / total(*at(i))), name="softmax")


@define("log_softmax", layout=Layout.AXES)
def log_softmax(x: te.Tensor, *, axis: int) -> te.Tensor:
    """The logarithm of the softmax along an axis."""
    greatest, _, total = _raised(x, axis)
    at = _statistic_index(axis)
    logarithm = te.compute(
        tuple(total.shape), lambda *i: vector_math.log(total(*i)), name="logarithm"
    )
    return te.compute(
        tuple(x.shape),
        lambda *i: subtract(subtract(x(*i), greatest(*at(i))), logarithm(*at(i))),
        name="log_softmax",
    )


def _raised(x: te.Tensor, axis: int) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """The greatest elements along an axis, e^(x less those), and the sums of that."""
    greatest = reduce_axes(x, [axis], "max", "greatest")
    at = _statistic_index(axis)

    def element(*i: tirx.Var) -> tirx.Expr:
        return vector_math.exp_negative(subtract(x(*i), greatest(*at(i))))

    raised = te.compute(tuple(x.shape), element, name="raised")
    return greatest, raised, reduce_axes(raised, [axis], "sum", "total")


@define("normalize", layout=Layout.AXES)
def normalize(x: te.Tensor, *, axes: list[int], epsilon: float) -> te.Tensor:
    """X less its mean over ``axes``, over its standard deviation there."""
    mean, factor = _mean_and_factor(x, axes, epsilon)
    at = _statistic_index(*axes)
    return te.compute(
        tuple(x.shape), lambda *i: subtract(x(*i), mean(*at(i))) * factor(*at(i)), name="normalize"
    )


@define("layer_norm")
def layer_norm(
    x: te.Tensor,
    scale: te.Tensor,
    bias: te.Tensor | None = None,
    *,
    axes: list[int],
    epsilon: float,
) -> te.Tensor:
    """``normalize``, then ``scale`` and ``bias``, which are broadcast to the shape of x."""
    mean, factor = _mean_and_factor(x, axes, epsilon)
    at = _statistic_index(*axes)

    def element(*i: tirx.Var) -> tirx.Expr:
        value = subtract(x(*i), mean(*at(i))) * factor(*at(i)) * _broadcast(scale, x, i)
        return value if bias is None else value + _broadcast(bias, x, i)

    return te.compute(tuple(x.shape), element, name="layer_norm")


def _broadcast(operand: te.Tensor, x: te.Tensor, i: Sequence[tirx.Expr]) -> tirx.Expr:
    return operand(*broadcast_indices(list(operand.shape), list(x.shape), i))


def _statistic_index(*axes: int) -> Callable[[Sequence[tirx.Expr]], list[tirx.Expr]]:
    """Where the statistic of an element's row is kept."""
    return lambda i: [tirx.const(0, "int64") if k in axes else v for k, v in enumerate(i)]


def _mean_and_factor(
    x: te.Tensor, axes: Sequence[int], epsilon: float
) -> tuple[te.Tensor, te.Tensor]:
    """The mean over ``axes`` and what brings deviations from it to the unit variance."""
    count = element_count(x, axes)
    at = _statistic_index(*axes)
    total = reduce_axes(x, axes, "sum", "total")
    mean = te.compute(tuple(total.shape), lambda *i: over_count(total(*i), count), name="mean")

    def squared_deviation(i: Sequence[tirx.Expr]) -> tirx.Expr:
        deviation = subtract(x(*i), mean(*at(i)))
        return deviation * deviation

    squares = reduce_over(x.shape, axes, "sum", "squares", squared_deviation)

    def factor(*i: tirx.Var) -> tirx.Expr:
        variance = over_count(squares(*i), count)
        return number(1.0, variance) / tirx.sqrt(variance + number(epsilon, variance))

    return mean, te.compute(tuple(total.shape), factor, name="factor")
