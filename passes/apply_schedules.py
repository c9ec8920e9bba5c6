"""ApplySchedules: every kernel gets the loops that the target's rules choose for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import tirx

from rten_aot.dialect.functions import bindings
from rten_aot.passes.base import relax_functions
from rten_aot.targets import schedule
from rten_aot.targets.base import Machine
from rten_aot.targets.common.choices import Decisions
from rten_aot.targets.cuda.kernel import Launch
from rten_aot.targets.cuda.schedule import schedule_device
from rten_aot.targets.cuda.target import Gpu


@dataclass(frozen=True)
class Scheduled:
    """A kernel with its loops; the last ``scratch`` parameters are work memory."""

    name: str
    function: tirx.PrimFunc
    scratch: int
    source: tirx.PrimFunc
    """The kernel before it was scheduled, with the same parameters but for work memory."""
    decisions: Decisions | None
    """What was chosen for its convolution or matrix product."""
    launches: tuple[Launch, ...] | None = None
    """What a GPU does in place of the function; None if the CPU computes the kernel."""


def apply_schedules(
    mod: tvm.IRModule,
    machine: Machine,
    note: Callable[[str], None],
    progress: Callable[[int, int], None],
) -> dict[str, Scheduled]:
    """Schedules for the kernels of ``mod`` by the names that ``call_tir`` uses.

    Kernels that are the same share one schedule. Names of schedules are C identifiers, in the order
    in which the model first calls them. ``progress`` gets how many of how many are done.
    """
    called = _called(mod)
    unique: dict[str, str] = {}
    by_hash: dict[int, list[str]] = defaultdict(list)
    for name in called:
        function = mod[name]
        key = tvm_ffi.structural_hash(function, map_free_vars=True)
        for other in by_hash[key]:
            if tvm_ffi.structural_equal(function, mod[other], map_free_vars=True):
                unique[name] = other
                break
        else:
            by_hash[key].append(name)
            unique[name] = name
    scheduled: dict[str, Scheduled] = {}
    distinct = [n for n in called if unique[n] == n]
    for index, name in enumerate(distinct):
        progress(index, len(distinct))
        made: list[Decisions] = []
        result, launches = _schedule(
            mod[name], machine, lambda line, n=name: note(f"{n}: {line}"), made.append
        )
        scratch = int(result.attrs.get("rten.scratch", 0)) if result.attrs else 0
        decisions = made[0] if made else None
        scheduled[name] = Scheduled(
            f"rten_k{index}_{name}", result, scratch, mod[name], decisions, launches
        )
    return {name: scheduled[unique[name]] for name in called}


def _schedule(
    function: tirx.PrimFunc,
    machine: Machine,
    note: Callable[[str], None],
    decided: Callable[[Decisions], None],
) -> tuple[tirx.PrimFunc, tuple[Launch, ...] | None]:
    """The function with its loops, or what a GPU launches."""
    if isinstance(machine, Gpu):
        device = schedule_device(function, machine, note, decided)
        if device is not None:
            return device.function, device.launches
        machine = machine.host
    return schedule(function, machine, note, decided), None


def _called(mod: tvm.IRModule) -> list[str]:
    names: dict[str, None] = {}
    functions = sorted(relax_functions(mod), key=lambda item: item[0].name_hint != "main")
    for _, function in functions:
        for _, value in bindings(function):
            if isinstance(value, tvm.ir.Call) and getattr(value.op, "name", "") == "relax.call_tir":
                names.setdefault(value.args[0].name_hint)
    return list(names)
