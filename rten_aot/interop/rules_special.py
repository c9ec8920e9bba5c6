"""Operators whose operands or attributes differ between the .rten format and ONNX."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from rten_aot.format import DType
from rten_aot.interop.attributes import DTYPES
from rten_aot.interop.call import INT64, Call, Result
from rten_aot.interop.elements import Element, proto_type
from rten_aot.interop.rules import rule


def dtype_attr(call: Call, name: str, default: DType) -> DType:
    """An attribute with an element type."""
    value = call.node.attrs.get(name)
    return DTYPES[value] if isinstance(value, str) else default


@rule("Cast")
def cast(call: Call) -> None:
    """https://onnx.ai/onnx/operators/onnx__Cast.html."""
    call.main([call.use(0)], [Result(dtype_attr(call, "to", "float32"))])


@rule("CastLike")
def cast_like(call: Call) -> None:
    """https://onnx.ai/onnx/operators/onnx__CastLike.html."""
    call.main([call.use(0), call.use(1)], [Result(call.dtype(1))])


@rule("ConstantOfShape")
def constant_of_shape(call: Call) -> None:
    """https://onnx.ai/onnx/operators/onnx__ConstantOfShape.html."""
    value = call.node.attrs["value"]
    dtype: DType = "int32" if isinstance(value, int) else "float32"
    tensor = onnx.numpy_helper.from_array(np.array([value], dtype))
    call.main([call.use(0, "int64")], [Result(dtype)], {"value": tensor})


@rule("EyeLike")
def eye_like(call: Call) -> None:
    """https://onnx.ai/onnx/operators/onnx__EyeLike.html: without dtype, the input's type."""
    dtype = dtype_attr(call, "dtype", call.dtype(0))
    element: Element = "int32" if dtype in ("int8", "uint8") else dtype
    attrs = {**call.attrs, "dtype": proto_type(element)}
    result = Result(dtype, element, loose=element != dtype)
    call.main([call.use(0, call.kernel(0))], [result], attrs)


@rule("GridSample")
def grid_sample(call: Call) -> None:
    """https://onnx.ai/onnx/operators/onnx__GridSample.html: linear, zeros outside."""
    attrs = {**call.attrs, "mode": "linear", "padding_mode": "zeros"}
    call.main([call.use(0), call.use(1)], [call.like(0)], attrs)


@rule("Max", "Min")
def extreme(call: Call) -> None:
    """https://onnx.ai/onnx/operators/onnx__Max.html."""
    call.main(_all(call, call.kernel(0)), [call.like(0)])


@rule("Sum")
def sum_(call: Call) -> None:
    """https://onnx.ai/onnx/operators/onnx__Sum.html; integers, which wrap, by Add."""
    if call.dtype(0) == "float32":
        call.main(_all(call), [call.like(0)])
        return
    first, *others = _all(call, "int64")
    for name in others[:-1]:
        first = call.emit("Add", [first, name])
    loose = Result(call.dtype(0), "int64", loose=True)
    op = "Add" if others else "Identity"
    call.main([first, *others[-1:]], [loose], {}, op=op)


@rule("Mean")
def mean(call: Call) -> None:
    """https://onnx.ai/onnx/operators/onnx__Mean.html; of integers, rounded towards zero."""
    if call.dtype(0) == "float32":
        call.main(_all(call), [call.like(0)])
        return
    first, *others = _all(call, "int64")
    for name in others:
        first = call.emit("Add", [first, name])
    count = call.constant(np.array(len(others) + 1, np.int64), "count")
    call.main([first, count], [Result(call.dtype(0), "int64", loose=True)], {}, op="Div")


def _all(call: Call, element: Element | None = None) -> list[str]:
    return [call.use(i, element) for i in range(len(call.node.inputs))]


@rule("Identity")
def identity(call: Call) -> None:
    """https://onnx.ai/onnx/operators/onnx__Identity.html, of sequences too."""
    tensor = call.tensor(0)
    sequence = tensor is not None and tensor.sequence
    call.main([call.use(0)], [Result(call.dtype(0))], sequence=sequence)


@rule("Mod")
def mod(call: Call) -> None:
    """https://onnx.ai/onnx/operators/onnx__Mod.html, which has no floored remainder of floats."""
    a, b = call.use(0), call.use(1)
    if call.dtype(0) != "float32" or call.attrs.get("fmod"):
        call.main([a, b], [call.like(0)])
        return
    zero = call.constant(np.array(0, np.float32), "zero")
    rest = call.emit("Mod", [a, b], {"fmod": 1})
    signs = call.emit("Xor", [call.emit("Less", [x, zero]) for x in (rest, b)])
    some = call.emit("Not", [call.emit("Equal", [rest, zero])])
    moved = call.emit("Add", [rest, b])
    call.main([call.emit("And", [signs, some]), moved, rest], [call.like(0)], {}, op="Where")


@rule("OneHot")
def one_hot(call: Call) -> None:
    """https://onnx.ai/onnx/operators/onnx__OneHot.html, in types that ONNX Runtime has."""
    values = call.dtype(2)
    element: Element = "float32" if values == "float32" else "int32"
    depth = call.use(1, "int64" if values == "float32" else "float32")
    result = Result(values, element, loose=element != values)
    call.main([call.use(0, "int64"), depth, call.use(2, element)], [result])


@rule("QuantizeLinear")
def quantize_linear(call: Call) -> None:
    """https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html."""
    stated = dtype_attr(call, "output_dtype", call.dtype(2) if call.tensor(2) else "uint8")
    attrs = dict(call.attrs)
    if call.tensor(2):
        attrs.pop("output_dtype", None)
    call.main([call.use(0, "float32"), call.use(1), call.use(2)], [Result(stated)], attrs)


@rule("RandomNormal", "RandomUniform")
def random(call: Call) -> None:
    """https://onnx.ai/onnx/operators/onnx__RandomNormal.html."""
    call.main([], [Result("float32")])


@rule(
    "ReduceL2",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
)
def reduction(call: Call) -> None:
    """https://onnx.ai/onnx/operators/onnx__ReduceSum.html: axes are an operand."""
    axes = call.use(1, "int64")
    stated = call.node.attrs.get("axes")
    if not axes and isinstance(stated, Sequence) and stated:
        axes = call.constant(np.array(stated, np.int64), "axes")
    call.main([call.use(0, call.kernel(0)), axes], [call.like(0)])


@rule("Resize")
def resize(call: Call) -> None:
    """https://onnx.ai/onnx/operators/onnx__Resize.html.

    An empty constant among its operands stands for one that is left out, as in ONNX before 13.
    """

    def given(position: int, element: Element) -> str:
        numbers = call.numbers(position)
        empty = numbers is not None and numbers.size == 0
        return "" if empty else call.use(position, element)

    scales, sizes = given(2, "float32"), given(3, "int64")
    # ONNX takes one of them only; RTen goes by the sizes.
    call.main([call.use(0), "", "" if sizes else scales, sizes], [call.like(0)])


@rule("Split")
def split(call: Call) -> None:
    """https://onnx.ai/onnx/operators/onnx__Split.html."""
    sizes = call.use(1, "int64")
    count = None if sizes else len(call.node.outputs)
    results = [call.like(0)] * len(call.node.outputs)
    call.main([call.use(0), sizes], results, {**call.attrs, "num_outputs": count})


@rule("Squeeze")
def squeeze(call: Call) -> None:
    """https://onnx.ai/onnx/operators/onnx__Squeeze.html; to RTen no axes are not all of them."""
    axes = call.numbers(1)
    if axes is not None and axes.size == 0:
        call.main([call.use(0)], [call.like(0)], {}, op="Identity")
    else:
        call.main([call.use(0), call.use(1, "int64")], [call.like(0)])


@rule("TopK")
def top_k(call: Call) -> None:
    """https://onnx.ai/onnx/operators/onnx__TopK.html: k is a vector of one number."""
    numbers = call.numbers(1)
    if numbers is not None:
        k = call.constant(numbers.reshape(-1).astype(np.int64), "k")
    else:
        one = call.constant(np.array([1], np.int64), "one")
        k = call.emit("Reshape", [call.use(1, "int64"), one])
    call.main([call.use(0, call.kernel(0)), k], [call.like(0), INT64])
