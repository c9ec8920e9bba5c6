"""FuseAttention: scores, their softmax and the weighted sums of values become one operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import tvm
from tvm import relax

from rten_aot.dialect.attention import step
from rten_aot.dialect.broadcast import same, static
from rten_aot.dialect.origins import nodes_of, with_nodes
from rten_aot.dialect.registry import Layout, attrs_of, call, op_def
from rten_aot.passes.base import Rewriter

_FEWEST_ROWS = 4
"""With fewer rows, keys and values are not worth copying into blocks."""
_MOST_STEPS = 8


@dataclass
class _Scores:
    """A matrix product, and what is done to its elements."""

    product: relax.Call
    steps: list[str] = field(default_factory=list)
    others: list[relax.Expr] = field(default_factory=list)
    nodes: set[int] = field(default_factory=set)


class FuseAttention(Rewriter):
    """``matmul(softmax(add(matmul(q, k), mask)), v)`` --> ``attention(q, k, v, mask)``.

    Between the first product and the softmax there may be any elementwise operators that keep the
    shape. Transposes of ``q``, ``k``, ``v`` and of the result become attributes. What lies between
    the products must have no other use.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note

    def rewrite(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
        """Begin at the last product, or at a transpose of what it became."""
        definition = op_def(value)
        if definition is None:
            return value
        if definition.name == "rten.transpose":
            return self._transposed(value)
        if definition.name != "rten.matmul":
            return value
        weights = self._only(value.args[0], "rten.softmax")
        if weights is None or attrs_of(weights)["axis"] != len(var.ty.shape.values) - 1:
            return value
        scores = self._scores(weights.args[0], 0)
        if scores is None or not _fits(scores.product, value):
            return value
        self._note(f"attention in one kernel: scores of {_sizes(scores.product)}")
        q, k = scores.product.args
        q, q_axes = self._through_transpose(q)
        k, k_axes = self._through_transpose(k, swapped=_is_transposed(scores.product))
        v, v_axes = self._through_transpose(value.args[1], swapped=_is_transposed(value))
        fused = call(
            "attention",
            q,
            k,
            v,
            *scores.others,
            steps=scores.steps,
            q_axes=q_axes,
            k_axes=k_axes,
            v_axes=v_axes,
            out_axes=list(range(len(var.ty.shape.values))),
        )
        return with_nodes(fused, {*scores.nodes, *nodes_of(weights)})

    def _source(self, expr: relax.Expr) -> relax.Expr | None:
        return self.bound.get(expr) if isinstance(expr, tvm.ir.Var) else None

    def _only(self, expr: relax.Expr, name: str) -> relax.Call | None:
        """The call of ``name`` that ``expr`` is bound to, if nothing else uses it."""
        source = self._source(expr)
        definition = op_def(source)
        if definition is None or definition.name != name or not self.used_once(expr):
            return None
        return source

    def _scores(self, expr: relax.Expr, depth: int) -> _Scores | None:
        """The product that ``expr`` was made of, element by element."""
        product = self._only(expr, "rten.matmul")
        if product is not None:
            return _Scores(product, nodes={*nodes_of(product)})
        source = self._source(expr)
        definition = op_def(source)
        if (
            source is None
            or definition is None
            or definition.layout is not Layout.ELEMENTWISE
            or depth == _MOST_STEPS
            or not self.used_once(expr)
        ):
            return None
        for position, operand in enumerate(source.args):
            if not _same_type(operand, expr):
                continue
            scores = self._scores(operand, depth + 1)
            if scores is not None:
                return _with_step(scores, source, position)
        return None

    def _through_transpose(
        self, expr: relax.Expr, *, swapped: bool = False
    ) -> tuple[relax.Expr, list[int]]:
        """What ``expr`` is a transpose of, and its axes; the last two ``swapped`` in the end."""
        axes = list(range(len(expr.ty.shape.values)))
        source = self._source(expr)
        definition = op_def(source)
        if source is not None and definition is not None and definition.name == "rten.transpose":
            expr, axes = source.args[0], attrs_of(source)["axes"]
        if swapped:
            axes = [*axes[:-2], axes[-1], axes[-2]]
        return expr, axes

    def _transposed(self, value: relax.Call) -> relax.Call:
        """A transpose; of attention, as attention that stores its result that way."""
        source = self._only(value.args[0], "rten.attention")
        if source is None:
            return value
        attrs = attrs_of(source)
        attrs["out_axes"] = [attrs["out_axes"][a] for a in attrs_of(value)["axes"]]
        return with_nodes(call("attention", *source.args, **attrs), nodes_of(source))


def fuse_attention(mod: tvm.IRModule, note: Callable[[str], None]) -> tvm.IRModule:
    """The module with ``rten.attention`` where it can be."""
    return FuseAttention(note).run(mod)


def _with_step(scores: _Scores, made: relax.Call, position: int) -> _Scores:
    operands: list[int | None] = []
    for i, operand in enumerate(made.args):
        if i == position:
            operands.append(None)
        else:
            operands.append(len(scores.others))
            scores.others.append(operand)
    definition = op_def(made)
    assert definition is not None
    scores.steps.append(step(definition.name, operands, attrs_of(made)))
    scores.nodes.update(nodes_of(made))
    return scores


def _is_transposed(product: relax.Call) -> bool:
    return bool(attrs_of(product).get("transpose_b", False))


def _fits(scores: relax.Call, sums: relax.Call) -> bool:
    """Whether the products are of float32 batches of the same size, with known depths."""
    operands = [*scores.args, sums.args[1]]
    if any(isinstance(x, tvm.ir.GenericConst) for x in operands[1:]):
        return False  # they are packed when the model is compiled
    shapes = [list(x.ty.shape.values) for x in operands]
    if any(str(x.ty.dtype) != "float32" or len(x.ty.shape.values) < 3 for x in operands):
        return False
    q, k, v = shapes
    batches = all(len(s) == len(q) and all(map(same, s[:-2], q[:-2])) for s in (k, v))
    depth, channels = static(q[-1]), static(v[-2 if _is_transposed(sums) else -1])
    keys = k[-2 if _is_transposed(scores) else -1], v[-1 if _is_transposed(sums) else -2]
    rows = static(q[-2])
    return (
        batches
        and bool(depth)
        and bool(channels)
        and same(*keys)
        and (rows is None or rows >= _FEWEST_ROWS)
    )


def _same_type(a: relax.Expr, b: relax.Expr) -> bool:
    if not isinstance(a.ty, relax.TensorType) or str(a.ty.dtype) != str(b.ty.dtype):
        return False
    shape, other = list(a.ty.shape.values), list(b.ty.shape.values)
    return len(shape) == len(other) and all(map(same, shape, other))


def _sizes(product: relax.Call) -> str:
    q, k = (list(x.ty.shape.values) for x in product.args)
    keys = k[-2 if _is_transposed(product) else -1]
    return " x ".join(str(static(size) or "?") for size in (*q[:-1], keys))
