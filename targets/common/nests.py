"""What elementwise and reduction nests share: outer loops, costs, what can be vectorised."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from tvm import sym, tirx
from tvm.ir import Call, Expr, TensorLoad
from tvm.tirx import Stmt

from rten_aot.targets.base import Machine
from rten_aot.targets.common.expr import (
    children,
    constant_int,
    i64,
    identity,
    is_call,
    is_vectorisable,
    walk,
)
from rten_aot.targets.common.loops import Loops
from rten_aot.targets.common.stages import Axis

CHUNK = 16 * 1024
"""Element operations that one turn of a parallel loop should do at least."""

GRAIN = 4 * 1024
"""Operations beside which the divisions that find the indices of a turn do not count."""

At: TypeAlias = Mapping[tirx.Var, Expr]
"""Values of the variables of axes."""

_COSTS = {"exp": 20, "sin": 20, "cos": 20, "tan": 30, "pow": 40, "sqrt": 8, "fmod": 20}


def cost(values: Sequence[Expr]) -> int:
    """About how many operations the values take per element, index arithmetic left out."""
    total = 1
    for node in walk(values):
        if isinstance(node, (tirx.Var, tirx.IntImm, tirx.FloatImm)):
            continue
        if isinstance(node, tirx.Div):
            total += 6
        elif is_call(node, "reinterpret") or is_call(node, "if_then_else"):
            continue
        elif isinstance(node, Call):
            total += _COSTS.get(str(node.op.name).rsplit(".", 1)[-1], 2)
        elif isinstance(node, TensorLoad) or str(node.ty) != "int64":
            total += 1
    return total


def is_big(machine: Machine, loops: Loops, axes: Sequence[Axis], work: int) -> bool | Expr:
    """Whether ``work`` operations for every point of the axes are worth several threads.

    An expression to be evaluated at run time if the number of points is not known.
    """
    total = loops.simplify(product(loops, axes) * i64(work))
    known = constant_int(total)
    enough = machine.parallel_operations
    return total >= i64(enough) if known is None else known >= enough


def product(loops: Loops, axes: Sequence[Axis]) -> Expr:
    """How many points the axes have."""
    total: Expr = i64(1)
    for axis in axes:
        total = loops.simplify(total * axis.extent)
    return total


def nested(
    loops: Loops,
    axes: Sequence[Axis],
    body: Callable[[At], Stmt],
    *,
    parallel: bool | Expr,
    work: int = GRAIN,
) -> Stmt:
    """Loops over the axes; with ``parallel`` the outermost ones become one parallel loop.

    If ``parallel`` is an expression, both forms are there and it chooses. ``work`` is about how
    many operations ``body`` takes.
    """
    if isinstance(parallel, Expr):
        return tirx.IfThenElse(
            parallel,
            nested(loops, axes, body, parallel=True, work=work),
            nested(loops, axes, body, parallel=False),
        )
    if parallel and axes:
        count = _shared_axes(axes)
        inner = axes[count:]
        for axis in inner:
            work *= constant_int(axis.extent) or 64

        def rest(at: At) -> Stmt:
            return _serial(loops, inner, at, body)

        return _shared(loops, axes[:count], rest, max(1, GRAIN // max(1, work)))
    return _serial(loops, axes, {}, body)


def _serial(loops: Loops, axes: Sequence[Axis], at: At, body: Callable[[At], Stmt]) -> Stmt:
    if not axes:
        return body(at)
    axis = axes[0]
    return loops.serial(
        axis.var.name,
        axis.extent,
        lambda v: _serial(loops, axes[1:], {**at, axis.var: v}, body),
    )


def _shared(loops: Loops, axes: Sequence[Axis], body: Callable[[At], Stmt], block: int) -> Stmt:
    """One parallel loop over the axes, the last one in pieces of ``block``.

    Each turn has to find its indices by divisions.
    """
    last = axes[-1]
    extent = constant_int(last.extent)
    if len(axes) == 1 or block == 1:
        return loops.parallel(
            "p", product(loops, axes), lambda p: body(split_index(loops, p, axes))
        )
    if extent is not None:
        block = min(block, extent)
    count = loops.simplify(tirx.floordiv(last.extent + i64(block - 1), i64(block)))
    pieces = Axis(loops.var("piece", count), count)
    outer = [*axes[:-1], pieces]

    def piece(p: Expr) -> Stmt:
        at = split_index(loops, p, outer)
        base = loops.simplify(at.pop(pieces.var) * i64(block))
        length = loops.simplify(tirx.Min(i64(block), last.extent - base))
        return loops.serial(
            last.var.name, length, lambda v: body({**at, last.var: loops.simplify(base + v)})
        )

    return loops.parallel("p", product(loops, outer), piece)


def _shared_axes(axes: Sequence[Axis]) -> int:
    """How many of the outermost axes make up the parallel loop."""
    turns = 1
    for count, axis in enumerate(axes):
        if turns >= 64:
            return count
        turns *= constant_int(axis.extent) or 1
    return len(axes)


def split_index(loops: Loops, index: Expr, axes: Sequence[Axis]) -> dict[tirx.Var, Expr]:
    """The axes' values where ``index`` counts through all of them, the last one fastest."""
    at: dict[tirx.Var, Expr] = {}
    for axis in reversed(axes[1:]):
        # Nothing is negative. Floor division by a size of unknown sign would repeat the dividend,
        # and so make the code grow exponentially with the number of axes.
        fixed = constant_int(axis.extent) is not None
        divide, rest = (tirx.floordiv, tirx.floormod) if fixed else (tirx.truncdiv, tirx.truncmod)
        at[axis.var] = loops.simplify(rest(index, axis.extent))
        index = loops.simplify(divide(index, axis.extent))
    at[axes[0].var] = index
    return at


def can_vectorise(values: Sequence[Expr], lane: Expr, loops: Loops) -> bool:
    """Whether the values can be computed for a vector of indices that differ by ``lane``.

    Guards of memory accesses, and what may record a failure, must not depend on ``lane``. Nor may
    symbolic sizes make an index uneven (choices and divisions by them): a wide gather takes seconds
    to compile and is no faster than a loop.
    """
    facts: dict[int, _Fact] = {}
    for node in walk(values):
        operands = [facts[identity(c)] for c in children(node)]
        varies = node.same_as(lane) or any(f.varies for f in operands)
        if isinstance(node, TensorLoad):
            if any(f.uneven for f in operands):
                return False
            facts[identity(node)] = _Fact(varies, False, False)
            continue
        sized = any(f.sized for f in operands)
        sized = sized or (isinstance(node, tirx.Var) and loops.is_size(node))
        even = isinstance(node, (tirx.Var, tirx.Add, tirx.Sub, tirx.Mul))
        uneven = (varies and sized and not even) or any(f.uneven for f in operands)
        facts[identity(node)] = _Fact(varies, sized, uneven)
        if not varies:
            continue
        if not is_vectorisable(node) or is_call(node, "call_extern"):
            return False
        if is_call(node, "if_then_else") and operands[0].varies:
            return False
    return True


class _Fact(NamedTuple):
    """How an expression depends on the lane and on symbolic sizes."""

    varies: bool
    sized: bool
    uneven: bool


def turning_points(condition: Expr, var: tirx.Var) -> set[int]:
    """Values of ``var`` at which a comparison with constants in ``condition`` turns."""
    points: set[int] = set()
    for node in walk([condition]):
        if not isinstance(node, (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)):
            continue
        if str(node.a.ty) != "int64":
            continue
        linear = sym.detect_linear_equation(node.a - node.b, [var])
        if len(linear) != 2:
            continue
        slope, base = (constant_int(x) for x in linear)
        if not slope or base is None:
            continue
        # slope * v + base <, <= ... 0 turns at v = -base / slope
        floor = (-base) // slope
        exact = floor * slope == -base
        if not exact:
            points.add(floor + 1)
        elif isinstance(node, (tirx.EQ, tirx.NE)):
            points |= {floor, floor + 1}
        elif isinstance(node, (tirx.LT, tirx.GE)) == (slope > 0):
            points.add(floor)
        else:
            points.add(floor + 1)
    return points
