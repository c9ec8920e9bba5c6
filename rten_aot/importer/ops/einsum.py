"""Einsum: https://onnx.ai/onnx/operators/onnx__Einsum.html.

Operands are combined two at a time, from left to right: by a matrix product where it serves, else
by a broadcast product and a sum.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tvm import relax

import rten_aot.dialect.arithmetic
import rten_aot.dialect.indexing
import rten_aot.dialect.matmul
import rten_aot.dialect.reduce  # noqa: F401  (all define what is emitted here)
from rten_aot.importer.context import OpContext, Size
from rten_aot.importer.ops.layout import permute
from rten_aot.importer.registry import op
from rten_aot.importer.sizes import broadcast, product

_EQUATION = re.compile(r"([A-Za-z]*(\.\.\.)?[A-Za-z]*)(,([A-Za-z]*(\.\.\.)?[A-Za-z]*))*")


@dataclass(frozen=True)
class _Term:
    """A tensor with a label for each of its axes, all different."""

    x: relax.Expr
    labels: list[str]


@op("Einsum")
def einsum(ctx: OpContext, *xs: relax.Expr) -> relax.Expr:
    """Sums of products of elements, as an equation such as ``bij,bjk->bik`` says.

    A size of 1 fits every other size of its label.
    """
    equation = ctx.attrs.string("equation").replace(" ", "")
    for x in xs:
        if ctx.dtype(x) not in ("float32", "int32") or ctx.dtype(x) != ctx.dtype(xs[0]):
            ctx.fail(f"operands are {', '.join(ctx.dtype(x) for x in xs)}")
    labels, wanted = _parse(ctx, equation, [ctx.rank(x) for x in xs])
    sizes: dict[str, Size] = {}
    terms = []
    for x, own in zip(xs, labels, strict=True):
        for label, size in zip(own, ctx.shape(x), strict=True):
            sizes[label] = broadcast(ctx, sizes[label], size) if label in sizes else size
        terms.append(_diagonal(ctx, x, own))
    missing = sorted(set(wanted) - set(sizes))
    if missing or len(set(wanted)) < len(wanted):
        _wrong(ctx, equation)
    result = terms[0]
    for position, term in enumerate(terms[1:], start=1):
        later = {label for rest in terms[position + 1 :] for label in rest.labels}
        result = _combine(ctx, result, term, later | set(wanted))
    result = _sum(ctx, result, set(wanted))
    return permute(ctx, result.x, [result.labels.index(label) for label in wanted])


def _wrong(ctx: OpContext, equation: str) -> None:
    ctx.fail(f'value "{equation}" is no valid equation for these operands', attr="equation")


def _parse(ctx: OpContext, equation: str, ranks: list[int]) -> tuple[list[list[str]], list[str]]:
    """The labels of the operands and of the result.

    Axes of an ellipsis are labelled from the last one back: "...0", "...1".
    """
    left, arrow, right = equation.partition("->")
    texts = left.split(",")
    sides = [left, right] if arrow else [left]
    if not all(map(_EQUATION.fullmatch, sides)) or "," in right or len(texts) != len(ranks):
        _wrong(ctx, equation)
    labels, most = [], 0
    for text, rank in zip(texts, ranks, strict=True):
        hidden = rank - len(text.replace("...", ""))
        if hidden < 0 or (hidden > 0 and "..." not in text):
            _wrong(ctx, equation)
        most = max(most, hidden)
        labels.append(_labels(text, hidden))
    if arrow:
        return labels, _labels(right, most)
    counts = Counter(label for text in texts for label in text.replace("...", ""))
    return labels, _labels("...", most) + sorted(n for n, count in counts.items() if count == 1)


def _labels(text: str, hidden: int) -> list[str]:
    before, dots, after = text.partition("...")
    middle = [f"...{i}" for i in reversed(range(hidden))] if dots else []
    return [*before, *middle, *after]


def _diagonal(ctx: OpContext, x: relax.Expr, labels: list[str]) -> _Term:
    """``x`` with repeated labels made one: only elements whose indices agree stay."""
    labels = list(labels)
    while (second := next((i for i, n in enumerate(labels) if n in labels[:i]), None)) is not None:
        first = labels.index(labels[second])
        shape = ctx.shape(x)
        ctx.equal_dims(shape[first], shape[second], f'sizes of label "{labels[second]}"')
        x = ctx.call("diagonal", x, first=first, second=second)
        del labels[second]
    return _Term(x, labels)


def _sum(ctx: OpContext, term: _Term, kept: set[str]) -> _Term:
    """The term summed over all labels but ``kept``."""
    axes = [i for i, label in enumerate(term.labels) if label not in kept]
    if not axes:
        return term
    summed = ctx.call("reduce_sum", term.x, axes=axes)
    shape = [size for i, size in enumerate(ctx.shape(term.x)) if i not in axes]
    return _Term(ctx.reshape(summed, shape), [n for n in term.labels if n in kept])


def _combine(ctx: OpContext, a: _Term, b: _Term, kept: set[str]) -> _Term:
    """The product of two terms, summed over labels that only they have."""
    a = _without_ones(ctx, a, b)
    b = _without_ones(ctx, b, a)
    a = _sum(ctx, a, kept | set(b.labels))
    b = _sum(ctx, b, kept | set(a.labels))
    size_a, size_b = (dict(zip(t.labels, ctx.shape(t.x), strict=True)) for t in (a, b))
    common = [n for n in a.labels if n in b.labels]
    inner = [n for n in common if n not in kept]
    if inner and all(ctx.same(size_a[n], size_b[n]) for n in common):
        return _matrix_product(ctx, a, b, [n for n in common if n in kept], inner)
    labels = a.labels + [n for n in b.labels if n not in a.labels]
    x = ctx.call("multiply", _aligned(ctx, a, labels), _aligned(ctx, b, labels))
    return _sum(ctx, _Term(x, labels), kept)


def _without_ones(ctx: OpContext, term: _Term, other: _Term) -> _Term:
    """The term without axes of size 1 that ``other`` has too; they change nothing."""
    ones = {
        label
        for label, size in zip(term.labels, ctx.shape(term.x), strict=True)
        if isinstance(size, int) and size == 1 and label in other.labels
    }
    shape = [
        size
        for label, size in zip(term.labels, ctx.shape(term.x), strict=True)
        if label not in ones
    ]
    return _Term(ctx.reshape(term.x, shape), [n for n in term.labels if n not in ones])


def _ordered(ctx: OpContext, term: _Term, labels: Sequence[str]) -> relax.Expr:
    return permute(ctx, term.x, [term.labels.index(n) for n in labels])


def _aligned(ctx: OpContext, term: _Term, labels: list[str]) -> relax.Expr:
    """The term with its axes in the order of ``labels`` and size 1 for those that it lacks."""
    own = dict(zip(term.labels, ctx.shape(term.x), strict=True))
    x = _ordered(ctx, term, [n for n in labels if n in own])
    return ctx.reshape(x, [own.get(n, 1) for n in labels])


def _matrix_product(
    ctx: OpContext, a: _Term, b: _Term, batch: list[str], inner: list[str]
) -> _Term:
    """The product over ``inner``: [batch, rows, inner] by [batch, inner, columns]."""
    size_a, size_b = (dict(zip(t.labels, ctx.shape(t.x), strict=True)) for t in (a, b))
    rows = [n for n in a.labels if n not in batch and n not in inner]
    columns = [n for n in b.labels if n not in batch and n not in inner]
    leading = [size_a[n] for n in batch]
    depth = product([size_a[n] for n in inner])
    left = ctx.reshape(
        _ordered(ctx, a, batch + rows + inner),
        [*leading, product([size_a[n] for n in rows]), depth],
    )
    right = ctx.reshape(
        _ordered(ctx, b, batch + inner + columns),
        [*leading, depth, product([size_b[n] for n in columns])],
    )
    shape = [*leading, *[size_a[n] for n in rows], *[size_b[n] for n in columns]]
    return _Term(ctx.reshape(ctx.call("matmul", left, right), shape), batch + rows + columns)
