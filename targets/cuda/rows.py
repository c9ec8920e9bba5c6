"""Reductions, and chains of steps over common rows: a block of threads for each row.

Softmax and layer normalisation are such chains. What one step stores, the next ones read when all
threads of the block have come so far.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx
from tvm.ir import Expr

from rten_aot.targets.common.access import access
from rten_aot.targets.common.context import Context
from rten_aot.targets.common.elementwise import step_values
from rten_aot.targets.common.epilogue import Epilogue
from rten_aot.targets.common.expr import constant_int, i64, loads
from rten_aot.targets.common.nests import product, split_index
from rten_aot.targets.common.stages import Axis, Stage
from rten_aot.targets.common.steps import Step
from rten_aot.targets.cuda.kernel import Launch, grid, indices, launch
from rten_aot.targets.cuda.lanes import LANES, is_wide_store, reads_wide, wide_store, wide_values
from rten_aot.targets.cuda.pointwise import THREADS, decode
from rten_aot.targets.cuda.text import Writer
from rten_aot.targets.cuda.words import c_type

WARP = 32
_LARGEST_BLOCK = 256
_FEW_TERMS = 32
"""One thread adds up so few terms by itself."""
_WORTH_LANES = 1 << 16
"""With fewer results there are better more threads than longer loads."""
_MANY_RESULTS = 1 << 13
"""With so many results there are threads enough if each takes one."""


def reduction(ctx: Context, stage: Stage, epilogue: Epilogue) -> Launch:
    """The kernel of a reduction and what follows it element by element."""
    loops = ctx.loops
    axes = [Axis(loops.var(a.var.name, a.extent), a.extent) for a in stage.spatial]
    if _alone(ctx, stage):
        writer = Writer(loops, indices(ctx.kernel))
        if _is_wide(ctx, writer, stage, epilogue):
            ctx.note(f"reduction, a thread for {LANES} results")
            count = decode(ctx, writer, axes, LANES)
            _serial_wide(ctx, writer, stage, epilogue, axes)
        else:
            ctx.note("reduction, a thread for each result")
            count = decode(ctx, writer, axes, 1)
            _serial(ctx, writer, stage, epilogue, [a.var for a in axes])
        blocks = loops.simplify(tirx.floordiv(count + i64(THREADS - 1), i64(THREADS)))
        return launch(writer, grid(blocks), THREADS)
    return rows(ctx, [Step((stage,), (), epilogue)], axes)


def rows(ctx: Context, steps: Sequence[Step], axes: Sequence[Axis]) -> Launch:
    """The kernel of steps whose first axes are ``axes``: a block of threads for each point."""
    threads = max(_threads(ctx, step, len(axes)) for step in steps)
    ctx.note(f"{len(steps)} step{'s' if len(steps) > 1 else ''} a row, {threads} threads a row")
    writer = Writer(ctx.loops, indices(ctx.kernel))
    count = _decode(writer, axes, "blockIdx.x")
    prefix = [a.var for a in axes]
    for index, step in enumerate(steps):
        if index:
            writer.add("__syncthreads();")
        rest = step.stages[0].spatial[len(axes) :]
        if step.epilogue is None:
            _spatial(ctx, writer, step, prefix, threads)
        elif all(constant_int(axis.extent) == 1 for axis in rest):
            one = [*prefix, *(i64(0) for _ in rest)]
            _together(ctx, writer, step.stages[0], step.epilogue, one, threads)
        else:
            _each(ctx, writer, step.stages[0], step.epilogue, prefix, threads)
    return launch(writer, grid(count), threads)


def _alone(ctx: Context, stage: Stage) -> bool:
    """Whether a thread should compute each result by itself."""
    terms = constant_int(product(ctx.loops, stage.reduce))
    if terms is not None and terms <= _FEW_TERMS:
        return True
    results = constant_int(product(ctx.loops, stage.spatial))
    if _along_memory(ctx, stage):
        return False
    return results is None or results >= _MANY_RESULTS or (terms or 0) <= 4 * results


def _is_wide(ctx: Context, writer: Writer, stage: Stage, epilogue: Epilogue) -> bool:
    """Whether a thread can compute four neighbouring results, with fewer and longer loads."""
    last = constant_int(stage.spatial[-1].extent) if stage.spatial else None
    results = constant_int(product(ctx.loops, stage.spatial))
    if last is None or last % LANES or (results or _WORTH_LANES) < _WORTH_LANES:
        return False
    where = [a.var for a in stage.spatial]
    term = ctx.values.value(stage, where, [a.var for a in stage.reduce])
    _, places = epilogue.results(tirx.Var("acc", stage.dtype), where)
    return reads_wide(writer, [term], [*stage.reduce, *stage.spatial]) and all(
        is_wide_store(writer, buffer, place, stage.spatial) for buffer, place in places
    )


def _along_memory(ctx: Context, stage: Stage) -> bool:
    """Whether neighbouring terms of one result are neighbours in memory."""
    axes = [*stage.spatial, *stage.reduce]
    value = ctx.values.value(stage, [a.var for a in stage.spatial], [a.var for a in stage.reduce])
    inner = next((i for i in reversed(range(len(axes))) if constant_int(axes[i].extent) != 1), None)
    if inner is None or inner < len(stage.spatial):
        return False
    found = [access(x.source, list(x.indices), axes, ctx.loops) for x in loads(value) if x.indices]
    steps = [a.strides[inner] for a in found]
    return any(s is not None and constant_int(s) == 1 for s in steps)


def _threads(ctx: Context, step: Step, outer: int) -> int:
    stage = step.stages[0]
    inner = constant_int(product(ctx.loops, [*stage.spatial[outer:], *stage.reduce]))
    if inner is None:
        return _LARGEST_BLOCK
    threads = WARP
    while threads < _LARGEST_BLOCK and threads * 4 < inner:
        threads *= 2
    return threads


def _decode(writer: Writer, axes: Sequence[Axis], number: str) -> Expr:
    """Have threads find the point they are for by its number; returns how many points there are."""
    loops = writer.loops
    count = product(loops, axes)
    flat = loops.var("row", count)
    writer.add(f"const {writer.index} row = {number};")
    writer.name(flat, "row")
    (limit,) = writer.values([count])
    writer.add(f"if (row >= {limit}) return;")
    if axes:
        _name_axes(writer, axes, flat)
    return count


def _name_axes(writer: Writer, axes: Sequence[Axis], flat: Expr) -> None:
    found = split_index(writer.loops, flat, axes)
    for axis, text in zip(axes, writer.values([found[a.var] for a in axes]), strict=True):
        name = writer.fresh("i")
        writer.add(f"const {writer.index} {name} = {text};")
        writer.name(axis.var, name)


def _loop(writer: Writer, axes: Sequence[Axis], first: str, step: str) -> None:
    """Open a loop over the points of the axes, from number ``first`` on."""
    loops = writer.loops
    count = product(loops, axes)
    if constant_int(count) == 0:
        axes = [Axis(a.var, i64(1)) for a in axes]
    flat = loops.var("at", count)
    (limit,) = writer.values([count])
    name, index = writer.fresh("at"), writer.index
    writer.name(flat, name)
    writer.add(f"for ({index} {name} = {first}; {name} < {limit}; {name} += {step}) {{")
    if axes:
        _name_axes(writer, axes, flat)


def _own(ctx: Context, axes: Sequence[Axis]) -> list[Axis]:
    return [Axis(ctx.loops.var(a.var.name, a.extent), a.extent) for a in axes]


def _spatial(
    ctx: Context, writer: Writer, step: Step, prefix: Sequence[Expr], threads: int
) -> None:
    axes = _own(ctx, step.stages[0].spatial[len(prefix) :])
    where = [*prefix, *(a.var for a in axes)]
    values = step_values(ctx, step.stages, where)
    _loop(writer, axes, "threadIdx.x", str(threads))
    for buffer, text in zip(step.storages, writer.values(values), strict=True):
        writer.store(buffer, where, text)
    writer.add("}")


def _each(
    ctx: Context,
    writer: Writer,
    stage: Stage,
    epilogue: Epilogue,
    prefix: Sequence[Expr],
    threads: int,
) -> None:
    """A thread for each of the several results of a row."""
    axes = _own(ctx, stage.spatial[len(prefix) :])
    _loop(writer, axes, "threadIdx.x", str(threads))
    _serial(ctx, writer, stage, epilogue, [*prefix, *(a.var for a in axes)])
    writer.add("}")


def _serial(
    ctx: Context, writer: Writer, stage: Stage, epilogue: Epilogue, where: Sequence[Expr]
) -> None:
    """One thread computes one result."""
    acc = _start(writer, stage)
    _terms(ctx, writer, stage, acc, where, "0", "1")
    _finish(writer, epilogue, acc, where)


def _serial_wide(
    ctx: Context, writer: Writer, stage: Stage, epilogue: Epilogue, axes: Sequence[Axis]
) -> None:
    """One thread computes four results along the last axis."""
    assert stage.reducer is not None
    where = [a.var for a in axes]
    (init,) = writer.values([stage.reducer.init])
    name = writer.fresh("acc")
    sums = [f"{name}[{lane}]" for lane in range(LANES)]
    writer.add(f"{c_type(stage.dtype)} {name}[{LANES}] = {{{', '.join([init] * LANES)}}};")
    terms = _own(ctx, stage.reduce)
    term = ctx.values.value(stage, where, [a.var for a in terms])
    _loop(writer, terms, "0", "1")
    acc, rhs = tirx.Var("acc", stage.dtype), tirx.Var("term", stage.dtype)
    for lane, (text,) in enumerate(wide_values(writer, [term], [*terms, *axes], {})):
        writer.hold(acc, sums[lane])
        part = writer.fresh("term")
        writer.add(f"const {c_type(stage.dtype)} {part} = {text};")
        writer.hold(rhs, part)
        _combine(writer, stage, acc, rhs)
    writer.add("}")
    values, places = epilogue.results(acc, where)
    by_lane = wide_values(writer, values, axes, {acc: sums})
    for index, (buffer, place) in enumerate(places):
        wide_store(writer, buffer, place, [texts[index] for texts in by_lane])


def _together(
    ctx: Context,
    writer: Writer,
    stage: Stage,
    epilogue: Epilogue,
    where: Sequence[Expr],
    threads: int,
) -> None:
    """All threads of the block compute one result."""
    acc = _start(writer, stage)
    _terms(ctx, writer, stage, acc, where, "threadIdx.x", str(threads))
    name, ctype = writer.variable(acc), c_type(stage.dtype)
    other = tirx.Var("other", stage.dtype)
    text = writer.fresh("other")
    writer.hold(other, text)
    distance = WARP // 2
    while distance:
        writer.add("{", f"const {ctype} {text} = {_exchange(name, distance, stage.dtype)};")
        _combine(writer, stage, acc, other)
        writer.add("}")
        distance //= 2
    if threads > WARP:
        shared = writer.fresh("shared")
        writer.add(
            f"__shared__ {ctype} {shared}[{threads // WARP}];",
            f"if (threadIdx.x % {WARP} == 0) {shared}[threadIdx.x / {WARP}] = {name};",
            "__syncthreads();",
            f"{name} = {shared}[0];",
            "#pragma unroll",
            f"for (int w = 1; w < {threads // WARP}; ++w) {{",
            f"const {ctype} {text} = {shared}[w];",
        )
        _combine(writer, stage, acc, other)
        writer.add("}")
    writer.add("if (threadIdx.x == 0) {")
    _finish(writer, epilogue, acc, where)
    writer.add("}")


def _exchange(name: str, distance: int, dtype: str) -> str:
    """The value of the lane at a distance."""
    if dtype in ("int8", "uint8", "bool"):
        return f"({c_type(dtype)})__shfl_xor_sync(0xffffffffu, (int){name}, {distance})"
    return f"__shfl_xor_sync(0xffffffffu, {name}, {distance})"


def _start(writer: Writer, stage: Stage) -> tirx.Var:
    assert stage.reducer is not None
    acc = tirx.Var("acc", stage.dtype)
    name = writer.fresh("acc")
    (init,) = writer.values([stage.reducer.init])
    writer.add(f"{c_type(stage.dtype)} {name} = {init};")
    writer.hold(acc, name)
    return acc


def _terms(
    ctx: Context,
    writer: Writer,
    stage: Stage,
    acc: tirx.Var,
    where: Sequence[Expr],
    first: str,
    step: str,
) -> None:
    assert stage.reducer is not None
    axes = _own(ctx, stage.reduce)
    term = ctx.values.value(stage, list(where), [a.var for a in axes])
    _loop(writer, axes, first, step)
    rhs = tirx.Var("term", stage.dtype)
    (text,) = writer.values([term])
    name = writer.fresh("term")
    writer.add(f"const {c_type(stage.dtype)} {name} = {text};")
    writer.hold(rhs, name)
    _combine(writer, stage, acc, rhs)
    writer.add("}")


def _combine(writer: Writer, stage: Stage, acc: tirx.Var, term: tirx.Var) -> None:
    assert stage.reducer is not None
    (text,) = writer.values([stage.reducer.combine(acc, term)])
    writer.add(f"{writer.variable(acc)} = {text};")


def _finish(writer: Writer, epilogue: Epilogue, acc: tirx.Var, where: Sequence[Expr]) -> None:
    values, places = epilogue.results(acc, where)
    texts = writer.values(values)
    for text, (buffer, place) in zip(texts, places, strict=True):
        writer.store(buffer, place, text)
