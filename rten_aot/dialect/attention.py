"""Attention: scores, what is done to them, their softmax, and the sums of values weighted by it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tvm import te, tirx

from rten_aot.dialect import vector_math
from rten_aot.dialect.broadcast import index
from rten_aot.dialect.movement import transpose
from rten_aot.dialect.reduce import reduce_over
from rten_aot.dialect.registry import PREFIX, UNANNOTATED, Annotations, Pattern, define, definition
from rten_aot.dialect.scalar import subtract

_PART: Annotations = {"rten.part": 1}


def step(name: str, operands: Sequence[int | None], attrs: dict[str, object]) -> str:
    """The text of a step: an elementwise operator ``name`` of the scores so far and of others.

    ``operands`` are the numbers of those among the attention's further operands; None stands for
    the scores.
    """
    made = {"name": name.removeprefix(PREFIX), "operands": list(operands), "attrs": attrs}
    return json.dumps(made, sort_keys=True)


@define("attention", pattern=Pattern.ANCHOR)
def attention(
    q: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
    *others: te.Tensor,
    steps: list[str],
    q_axes: list[int],
    k_axes: list[int],
    v_axes: list[int],
    out_axes: list[int],
    annotations: Annotations = UNANNOTATED,
) -> te.Tensor:
    """``softmax(steps(q @ k)) @ v``, the softmax along the last axis; zeros where no keys are.

    The axes of ``q`` (batch ..., rows, depth), ``k`` (batch ..., depth, keys), ``v`` (batch ...,
    keys, channels) and the result (batch ..., rows, channels) are transposed as ``rten.transpose``
    does. ``steps``, made by ``step``, keep the shape of the scores. Sums are divided by the
    softmax's denominators in the end.
    """
    q, k, v = transpose(q, axes=q_axes), transpose(k, axes=k_axes), transpose(v, axes=v_axes)
    *batch, rows, _ = q.shape
    scores = _scores(q, k)
    raised, total = _softmax(_after(steps, scores, others))
    keys = te.reduce_axis((index(0), k.shape[-1]), name="rk")
    sums = te.compute(
        (*batch, rows, v.shape[-1]),
        lambda *i: te.sum(raised(*i[:-1], keys) * v(*i[:-2], keys, i[-1]), axis=keys),
        name="attention",
        attrs={"rten.anchor": "attention", **annotations},
    )

    def result(*i: tirx.Var) -> tirx.Expr:
        denominator = total(*i[:-1], index(0))
        one = tirx.const(1.0, "float32")
        # Of no keys it is zero, and so are the sums; else it is at least 1.
        return sums(*i) * (one / tirx.Select(denominator.equal(0.0), one, denominator))

    weighted = te.compute(tuple(sums.shape), result, name="weighted")
    return transpose(weighted, axes=out_axes)


def _scores(q: te.Tensor, k: te.Tensor) -> te.Tensor:
    depth = te.reduce_axis((index(0), q.shape[-1]), name="rd")
    return te.compute(
        (*q.shape[:-1], k.shape[-1]),
        lambda *i: te.sum(q(*i[:-1], depth) * k(*i[:-2], depth, i[-1]), axis=depth),
        name="scores",
        attrs=_PART,
    )


def _after(steps: Sequence[str], scores: te.Tensor, others: Sequence[te.Tensor]) -> te.Tensor:
    for text in steps:
        made = json.loads(text)
        operands = [scores if n is None else others[n] for n in made["operands"]]
        result = definition(made["name"]).te(*operands, **made["attrs"])
        assert isinstance(result, te.Tensor)
        scores = result
    return scores


def _softmax(x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """e^(x less its greatest), and the sums of that."""
    last = len(x.shape) - 1
    greatest = reduce_over(x.shape, [last], "max", "greatest", lambda i: x(*i), _PART)

    def element(*i: tirx.Var) -> tirx.Expr:
        return vector_math.exp_negative(subtract(x(*i), greatest(*i[:-1], index(0))))

    raised = te.compute(tuple(x.shape), element, name="raised")
    return raised, reduce_over(x.shape, [last], "sum", "total", lambda i: raised(*i), _PART)
