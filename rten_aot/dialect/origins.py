"""Which nodes of the model a call came from: its span tells, which no comparison looks at."""

from __future__ import annotations

from collections.abc import Iterable

import tvm
from tvm import relax
from tvm.ir import SourceName, Span


def nodes_of(expr: relax.Expr | None) -> tuple[int, ...]:
    """The numbers of the nodes, in order; empty where they are not known."""
    span = expr.span if isinstance(expr, tvm.ir.Call) else None
    if span is None:
        return ()
    return tuple(int(number) for number in span.source_name.name.split())


def with_nodes(expr: relax.Expr, nodes: Iterable[int]) -> relax.Expr:
    """The call with these nodes added to its own; what is no call stays as it is."""
    if not isinstance(expr, tvm.ir.Call):
        return expr
    known = nodes_of(expr)
    every = sorted({*known, *nodes})
    if len(every) == len(known):
        return expr
    name = SourceName(" ".join(map(str, every)))
    return tvm.ir.Call(expr.op, expr.args, expr.attrs, expr.ty_args, Span(name, 0, 0, 0, 0))
