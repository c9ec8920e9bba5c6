"""Transpositions: tiles go through shared memory; loads and stores both run along memory."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx
from tvm.ir import Expr, TensorLoad

from rten_aot.targets.common.access import Access, Nest, access
from rten_aot.targets.common.context import Context
from rten_aot.targets.common.expr import Rewriter, constant_int, i64, identity, loads
from rten_aot.targets.common.nests import product
from rten_aot.targets.common.stages import Axis
from rten_aot.targets.cuda.factor import name_axes
from rten_aot.targets.cuda.kernel import Launch, grid, indices, launch
from rten_aot.targets.cuda.lanes import always
from rten_aot.targets.cuda.text import Writer
from rten_aot.targets.cuda.words import c_type

SIDE = 32
"""Of a tile."""
_ROWS = 8
"""Rows of a tile that the threads take at once."""
_SHORTEST = 8
"""Axes that are shorter leave too much of a tile empty."""


def turned(ctx: Context, nest: Nest) -> Launch | None:
    """The kernel for values that lie in memory along another axis than operands do, else None."""
    found = _other_axis(ctx, nest)
    if found is None:
        return None
    other, across = found
    ctx.note("elementwise, transposed in tiles")
    writer = Writer(ctx.loops, indices(ctx.kernel))
    blocks = _place_block(writer, nest.axes, other)
    inner = nest.axes[-1]
    for number, load in enumerate(across):
        dtype = c_type(str(load.source.ty.dtype))
        writer.add(f"__shared__ {dtype} tile{number}[{SIDE}][{SIDE + 1}];")
    _each(writer, (other, "other0"), (inner, "inner0"))
    for number, text in enumerate(writer.values(list(across))):
        writer.add(f"tile{number}[ty + r][tx] = {text};")
    writer.add("}", "}", "__syncthreads();")
    _each(writer, (inner, "inner0"), (other, "other0"))
    by_load = {identity(load): _held(writer, load, k) for k, load in enumerate(across)}
    rewrite = Rewriter(lambda node: by_load.get(identity(node)))
    texts = writer.values([rewrite(value) for value in nest.values])
    for buffer, place, text in zip(nest.buffers, nest.places, texts, strict=True):
        writer.store(buffer, place, text)
    writer.add("}", "}")
    return launch(writer, grid(blocks), SIDE * _ROWS)


def _held(writer: Writer, load: TensorLoad, number: int) -> tirx.Var:
    var = tirx.Var("held", str(load.source.ty.dtype))
    writer.hold(var, f"tile{number}[tx][ty + r]")
    return var


def _other_axis(ctx: Context, nest: Nest) -> tuple[Axis, list[TensorLoad]] | None:
    """The axis along which operands lie, and their loads."""
    if len(nest.axes) < 2 or not all(_step(a, len(nest.axes) - 1) == 1 for a in nest.stores):
        return None
    if not all(_is_long(a) for a in nest.axes[-1:]):
        return None
    found: dict[int, list[TensorLoad]] = {}
    for node in always(nest.values):
        if isinstance(node, TensorLoad) and node.indices and not loads(*node.indices):
            seen = access(node.source, list(node.indices), nest.axes, ctx.loops)
            if _step(seen, len(nest.axes) - 1) not in (0, 1):
                for position, axis in enumerate(nest.axes[:-1]):
                    if _step(seen, position) == 1 and _is_long(axis):
                        found.setdefault(position, []).append(node)
    if not found:
        return None
    position = max(found, key=lambda p: len(found[p]))
    return nest.axes[position], found[position]


def _step(a: Access, position: int) -> int | None:
    stride = a.strides[position]
    return None if stride is None else constant_int(stride)


def _is_long(axis: Axis) -> bool:
    extent = constant_int(axis.extent)
    return extent is None or extent >= _SHORTEST


def _place_block(writer: Writer, axes: Sequence[Axis], other: Axis) -> Expr:
    """Append which tile a block is for; returns the number of blocks."""
    loops, index = writer.loops, writer.index
    inner = axes[-1]
    tiles = [
        loops.simplify(tirx.floordiv(a.extent + i64(SIDE - 1), i64(SIDE))) for a in (inner, other)
    ]
    rest = [a for a in axes[:-1] if a is not other]
    across, down = writer.values(tiles)
    writer.add(
        f"const int tx = threadIdx.x % {SIDE}, ty = threadIdx.x / {SIDE};",
        f"const {index} block = blockIdx.x;",
        f"const {index} inner0 = block % {across} * {SIDE};",
        f"const {index} other0 = block / {across} % {down} * {SIDE};",
        f"const {index} layer = block / {across} / {down};",
    )
    name_axes(writer, rest, "layer")
    return loops.simplify(tiles[0] * tiles[1] * product(loops, rest))


def _each(writer: Writer, along: tuple[Axis, str], down: tuple[Axis, str]) -> None:
    """Open a loop over a tile in which neighbouring threads are neighbours along an axis.

    Each axis comes with the name of its first index in the tile.
    """
    writer.add("#pragma unroll", f"for (int r = 0; r < {SIDE}; r += {_ROWS}) {{")
    tests = []
    for (axis, first), place in ((along, "tx"), (down, "ty + r")):
        name = writer.fresh("i")
        writer.add(f"const {writer.index} {name} = {first} + {place};")
        writer.name(axis.var, name)
        (limit,) = writer.values([axis.extent])
        tests.append(f"{name} < {limit}")
    writer.add(f"if ({' && '.join(tests)}) {{")
