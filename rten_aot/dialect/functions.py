"""How Relax functions look here: one dataflow block of bindings, and a tuple of results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import tvm
from tvm import relax


def bindings(function: relax.Function) -> Iterator[tuple[relax.Var, relax.Expr]]:
    """The bindings of a straight-line function in order."""
    for block in function.body.blocks:
        for binding in block.bindings:
            yield binding.var, binding.value


def result_of(function: relax.Function) -> list[relax.Expr]:
    """The elements of a function's result, as variables or constants."""
    value = function.body.body
    defined = dict(bindings(function))
    while isinstance(value, tvm.ir.Var) and isinstance(
        defined.get(value), (tvm.ir.Tuple, tvm.ir.Var)
    ):
        value = defined[value]
    return list(value.fields) if isinstance(value, tvm.ir.Tuple) else [value]


def result_types(function: relax.Function) -> list[relax.TensorType]:
    """The types of the results.

    The function's own return type forgets sizes that become known inside of it.
    """
    return [value.ty for value in result_of(function)]


@contextmanager
def building(builder: relax.BlockBuilder, name: str, params: Sequence[relax.Var]) -> Iterator[None]:
    """A function under construction, which the caller ends by ``emit_func_output``."""
    with builder.function(name, list(params)):
        try:
            yield
        except BaseException:
            # An open block would make TVM print a warning beside the error.
            builder._end_block()
            raise
