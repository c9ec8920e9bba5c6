"""How each operator of the .rten format is written in ONNX, where a table can say it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from rten_aot.errors import InternalError, UnsupportedOpError
from rten_aot.interop.call import BOOL, INT64, Call, Result
from rten_aot.interop.elements import Element

Rule: TypeAlias = Callable[[Call], None]

RULES: dict[str, Rule] = {}
"""The rule of each operator."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the decorated function for operators that need more than the table."""

    def register(function: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise InternalError(f"operator {name} has two rules")
            RULES[name] = function
        return function

    return register


# Operands, results. Operands, the last of which stands for all that follow:
#   T the operator's element type, or a wider one where ONNX Runtime has no kernel for it
#   k the same for this operand alone; = its own type; ? bool; l int64; f float32
# Results: T like the first operand T; ? bool; l int64; i int32; f float32; B uint8
_TABLE = """
Abs T T
Acos T T
Add T T
And ? ?
ArgMax T l
ArgMin T l
Asin T T
Atan T T
AveragePool T T
BatchNormalization T T
Ceil T T
Clip T T
Concat T T
ConcatFromSequence T T
Conv T T
ConvInteger = i
ConvTranspose T T
Cos T T
CumSum T= T
DepthToSpace T T
DequantizeLinear =f= f
Div T T
Dropout Tf? T?
DynamicQuantizeLinear f BfB
Einsum T T
Elu T T
Equal T ?
Erf T T
Exp T T
Expand Tl T
Flatten T T
Floor T T
GRU TTTT=T TT
Gather T= T
GatherElements T= T
GatherND Tl T
Gelu T T
Gemm T T
GlobalAveragePool T T
GlobalMaxPool T T
Greater T ?
GreaterOrEqual T ?
HardSigmoid T T
HardSwish T T
InstanceNormalization T T
IsInf T ?
IsNaN T ?
LSTM TTTT=T TTT
LayerNormalization T TTT
LeakyRelu T T
Less T ?
LessOrEqual T ?
Log T T
LogSoftmax T T
MatMul T T
MatMulInteger = i
MaxPool T T
Mul T T
Neg T T
NonMaxSuppression fflf l
NonZero T l
Not ? ?
Or ? ?
PRelu T T
Pad TlTl T
Pow Tk T
Reciprocal T T
RandomNormalLike f f
RandomUniformLike f f
Range T T
Relu T T
Reshape Tl T
Round T T
STFT T=T= T
ScatterElements T=T T
ScatterND TlT T
Shape = l
Sigmoid T T
Sign T T
Sin T T
Size = l
Slice T= T
Softmax T T
Softplus T T
Sqrt T T
Sub T T
Tan T T
Tanh T T
Tile Tl T
Transpose T T
Trilu Tl T
Unsqueeze Tl T
Where ?T T
Xor ? ?
"""

_FIXED: Mapping[str, Element] = {"?": "bool", "l": "int64", "f": "float32"}
_RESULTS: Mapping[str, Result] = {
    "?": BOOL,
    "l": INT64,
    "i": Result("int32"),
    "f": Result("float32"),
    "B": Result("uint8"),
}


def _tabled(takes: str, gives: str) -> Rule:
    first = takes.find("T")

    def write(call: Call) -> None:
        inputs = []
        for position in range(len(call.node.inputs)):
            kind = takes[min(position, len(takes) - 1)]
            match kind:
                case "T":
                    inputs.append(call.use(position, call.kernel(first)))
                case "k":
                    inputs.append(call.use(position, call.kernel(position)))
                case "=":
                    inputs.append(call.use(position))
                case _:
                    inputs.append(call.use(position, _FIXED[kind]))
        results = [call.like(first) if kind == "T" else _RESULTS[kind] for kind in gives]
        call.main(inputs, results)

    return write


for _line in _TABLE.split("\n"):
    match _line.split():
        case [_name, _takes, _gives]:
            rule(_name)(_tabled(_takes, _gives))


def write(call: Call) -> None:
    """Write an operator.

    Raises:
        UnsupportedOpError: ONNX has no such operator.
    """
    node = call.node
    if node.op not in RULES:
        raise UnsupportedOpError("cannot be written as ONNX", node=node.name, op=node.op)
    RULES[node.op](call)
