"""Four neighbouring elements at once: loads and stores of 16 bytes where memory is even."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm import sym, tirx
from tvm.ir import Expr, TensorLoad

from rten_aot.targets.common.access import Access, access, flat_offset
from rten_aot.targets.common.expr import (
    Buffer,
    Rewriter,
    children,
    constant_int,
    free_vars,
    i64,
    identity,
    is_call,
    loads,
    substitute,
)
from rten_aot.targets.common.stages import Axis
from rten_aot.targets.cuda.text import Writer

LANES = 4

VECTORS: Mapping[str, str] = {
    "float32": "float4",
    "int32": "int4",
    "int8": "char4",
    "uint8": "uchar4",
}
"""The CUDA types of four elements."""


def is_wide(a: Access, axes: Sequence[Axis]) -> bool:
    """Whether aligned fours of elements along the last axis lie together in memory, aligned."""
    last = a.strides[-1]
    if str(a.buffer.ty.dtype) not in VECTORS or last is None or constant_int(last) != 1:
        return False
    for stride in a.strides[:-1]:
        step = None if stride is None else constant_int(stride)
        if step is None or step % LANES:
            return False
    start = substitute(a.offset, {axis.var: i64(0) for axis in axes})
    first = constant_int(sym.Analyzer().simplify(start))
    return first is not None and first % LANES == 0


def is_wide_store(
    writer: Writer, buffer: Buffer, indices: Sequence[Expr], axes: Sequence[Axis]
) -> bool:
    """Whether four elements along the last axis can be stored at once."""
    return bool(indices) and is_wide(access(buffer, indices, axes, writer.loops), axes)


def reads_wide(writer: Writer, values: Sequence[Expr], axes: Sequence[Axis]) -> bool:
    """Whether the values have loads that ``wide_values`` makes four at a time."""
    found = [plain_load(node) for node in always(values)]
    return any(
        f is not None
        and axes[-1].var not in free_vars(f[0])
        and is_wide(access(f[1].source, list(f[1].indices), axes, writer.loops), axes)
        for f in found
    )


def wide_values(
    writer: Writer,
    values: Sequence[Expr],
    axes: Sequence[Axis],
    own: Mapping[tirx.Var, Sequence[str]],
) -> list[list[str]]:
    """Append what computes the values at four places along the last axis; their texts, by lane.

    Variables in ``own`` differ from lane to lane; their texts are given.
    """
    inner = axes[-1].var
    replaced = _wide_loads(writer, values, axes)
    parts = {v: _named(writer, str(v.ty.dtype), texts) for v, texts in own.items()}
    every: list[Expr] = []
    for lane in range(LANES):

        def replace(node: Expr, lane: int = lane) -> Expr | None:
            if identity(node) in replaced:
                return replaced[identity(node)][lane]
            if isinstance(node, tirx.Var):
                if node in parts:
                    return parts[node][lane]
                return node + i64(lane) if lane and node.same_as(inner) else None
            return None

        rewrite = Rewriter(replace)
        every += [rewrite(v) for v in values]
    texts = writer.values(every)
    count = len(values)
    return [texts[lane * count : (lane + 1) * count] for lane in range(LANES)]


def _named(writer: Writer, dtype: str, texts: Sequence[str]) -> list[tirx.Var]:
    variables = [tirx.Var("part", dtype) for _ in texts]
    for var, text in zip(variables, texts, strict=True):
        writer.hold(var, text)
    return variables


def _wide_loads(
    writer: Writer, values: Sequence[Expr], axes: Sequence[Axis]
) -> dict[int, list[tirx.Var]]:
    """Append long loads; what they bring, element by element, by the nodes they are in place of.

    These are loads, and loads under a condition that is the same for all four, with 0 otherwise.
    """
    replaced: dict[int, list[tirx.Var]] = {}
    for node in always(values):
        found = plain_load(node)
        if found is None or axes[-1].var in free_vars(found[0]):
            continue
        condition, load = found
        if is_wide(access(load.source, list(load.indices), axes, writer.loops), axes):
            name = wide_load(writer, load, condition)
            texts = [f"{name}.{letter}" for letter in "xyzw"]
            replaced[identity(node)] = _named(writer, str(load.source.ty.dtype), texts)
    return replaced


def plain_load(value: Expr) -> tuple[Expr, TensorLoad] | None:
    """The condition and the load of a value that is one element of memory, or else 0."""
    if isinstance(value, TensorLoad):
        condition, load = tirx.const(1, "bool"), value
    elif is_call(value, "if_then_else") and isinstance(value.args[1], TensorLoad):
        condition, load, other = value.args
        zero = isinstance(other, (tirx.IntImm, tirx.FloatImm)) and float(other.value) == 0.0
        if not zero or loads(condition):
            return None
    else:
        return None
    return None if not load.indices or loads(*load.indices) else (condition, load)


def wide_load(writer: Writer, load: TensorLoad, condition: Expr) -> str:
    """Append the load of four elements, 0 where the condition fails; returns a name for them."""
    test, offset = writer.values(
        [condition, flat_offset(load.source, list(load.indices), writer.loops)]
    )
    name, vector = writer.fresh("v"), VECTORS[str(load.source.ty.dtype)]
    whole = f"*(const {vector} *)({writer.buffer(load.source)} + {offset})"
    if test == "true":
        writer.add(f"const {vector} {name} = {whole};")
    else:
        writer.add(
            f"{vector} {name} = make_{vector}(0, 0, 0, 0);", f"if ({test}) {name} = {whole};"
        )
    return name


def wide_store(
    writer: Writer, buffer: Buffer, indices: Sequence[Expr], parts: Sequence[str]
) -> None:
    """Append the store of four neighbouring elements, whose address is aligned to all four."""
    (offset,) = writer.values([flat_offset(buffer, indices, writer.loops)])
    writer.written.add(buffer)
    vector = VECTORS[str(buffer.ty.dtype)]
    target = writer.buffer(buffer)
    writer.add(f"*({vector} *)({target} + {offset}) = make_{vector}({', '.join(parts)});")


def always(values: Sequence[Expr]) -> list[Expr]:
    """The nodes that are computed whatever conditions say."""
    seen: dict[int, Expr] = {}

    def visit(node: Expr) -> None:
        if identity(node) in seen:
            return
        seen[identity(node)] = node
        operands = children(node)
        branch = is_call(node, "if_then_else") or isinstance(node, tirx.Select)
        for operand in operands[:1] if branch else operands:
            visit(operand)

    for value in values:
        visit(value)
    return list(seen.values())
