"""Matrix products (ONNX MatMul and MatMulInteger, the product of Gemm)."""

from __future__ import annotations

from tvm import te, tirx

from rten_aot.dialect.broadcast import broadcast_indices, broadcast_shape, index, static
from rten_aot.dialect.conv import widened
from rten_aot.dialect.registry import UNANNOTATED, Annotations, Pattern, define
from rten_aot.dialect.storage import stored
from rten_aot.errors import ShapeError


@define("matmul", pattern=Pattern.ANCHOR)
def matmul(
    a: te.Tensor, b: te.Tensor, *, transpose_b: bool = False, annotations: Annotations = UNANNOTATED
) -> te.Tensor:
    """``a @ b`` for ranks from 2 up; axes before the last two broadcast.

    With ``transpose_b`` the last two axes of ``b`` are swapped. Products of 8-bit integers are
    summed in int32. An empty sum is zero.
    """
    rows, inner = a.shape[-2], a.shape[-1]
    columns, own_inner = (b.shape[-2], b.shape[-1]) if transpose_b else (b.shape[-1], b.shape[-2])
    known, own_known = static(inner), static(own_inner)
    if known is not None and own_known is not None and known != own_known:
        raise ShapeError(f"matrix product of inner sizes {known} and {own_known}")
    if known is None and own_known is not None:
        inner = own_inner
    batch = broadcast_shape(list(a.shape[:-2]), list(b.shape[:-2]))
    k = te.reduce_axis((index(0), inner), name="rk")

    def element(*i: tirx.Var) -> tirx.Expr:
        *leading, m, n = i
        left = a(*broadcast_indices(list(a.shape[:-2]), batch, leading), m, k)
        place = (n, k) if transpose_b else (k, n)
        right = b(*broadcast_indices(list(b.shape[:-2]), batch, leading), *place)
        return te.sum(widened(left, str(a.dtype)) * widened(right, str(b.dtype)), axis=k)

    attrs = {}
    if str(a.dtype) == str(b.dtype) == "float32":
        attrs = {"rten.anchor": "gemm", "transpose_b": int(transpose_b), **annotations}
    return te.compute((*batch, rows, columns), element, name="matmul", attrs=attrs)


@define("gemm_packed", pattern=Pattern.ANCHOR)
def gemm_packed(
    a: te.Tensor, b: te.Tensor, *, n: int, annotations: Annotations = UNANNOTATED
) -> te.Tensor:
    """``a @ b`` with one matrix ``b`` of ``n`` columns, packed as ``[blocks, inner, lanes]``.

    Column ``j`` is lane ``j % lanes`` of block ``j // lanes``; lanes past the last column hold
    zeros. ``b`` may be float16.
    """
    _, inner, lanes = b.shape
    k = te.reduce_axis((index(0), inner), name="rk")

    def element(*i: tirx.Var) -> tirx.Expr:
        *leading, j = i
        weight = stored(b(tirx.floordiv(j, lanes), k, tirx.floormod(j, lanes)))
        return te.sum(a(*leading, k) * weight, axis=k)

    return te.compute(
        (*a.shape[:-1], index(n)),
        element,
        name="matmul",
        attrs={"rten.anchor": "gemm", "packed": 1, **annotations},
    )
