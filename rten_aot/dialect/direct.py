"""Kernels written as loops, for what te.compute cannot say (sorting, scans, recurrences)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import te, tirx

Body = Callable[[Sequence[tirx.Buffer], Sequence[tirx.Buffer]], tirx.Stmt]


def direct(
    shapes: Sequence[Sequence[tirx.Expr]],
    inputs: Sequence[te.Tensor],
    body: Body,
    dtypes: Sequence[str],
    name: str,
) -> te.Tensor | list[te.Tensor]:
    """The outputs of the kernel that ``body(input buffers, output buffers)`` writes.

    Buffers are compact and start at their pointers. Use with ``Pattern.OPAQUE``: fusion and
    scheduling leave the loops as they are.
    """

    def declare(shape: Sequence[tirx.Expr], dtype: str, label: str) -> tirx.Buffer:
        return tirx.decl_buffer(list(shape), dtype, name=label, elem_offset=tirx.const(0, "int64"))

    return te.extern(
        [list(s) for s in shapes],
        list(inputs),
        body,
        name=name,
        dtype=list(dtypes),
        in_buffers=[declare(t.shape, str(t.dtype), f"in{i}") for i, t in enumerate(inputs)],
        out_buffers=[
            declare(s, d, f"out{i}") for i, (s, d) in enumerate(zip(shapes, dtypes, strict=True))
        ],
    )
