"""How a kernel reports, at run time, that the model cannot go on."""

from __future__ import annotations

from enum import IntEnum

from tvm import tirx


class Failure(IntEnum):
    """Kinds of run-time failure; the native runtime has the same numbers and words the messages."""

    INDEX_OUT_OF_RANGE = 1
    DIVISION_BY_ZERO = 2
    SHAPE_MISMATCH = 3
    NOT_SUPPORTED = 4
    CHECK = 6
    """A condition on sizes; the value is its index in the model's list of checks."""


def fail(kind: Failure, node: int, value: tirx.Expr) -> tirx.Expr:
    """An int32 zero whose evaluation records the failure (the first one of a run wins).

    Kernels go on with a harmless value in place of the faulty one; the run returns the error.
    """
    return tirx.call_extern(
        "int32",
        "rten_aot_fail",
        tirx.const(int(kind), "int32"),
        tirx.const(node, "int32"),
        tirx.Cast("int64", value),
    )
