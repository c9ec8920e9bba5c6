"""The passes in their order; the one place that knows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tvm
from tvm import relax

from rten_aot.passes.channels_last import channels_last
from rten_aot.passes.fold_constants import Evaluate, fold_constants
from rten_aot.passes.fold_scales import fold_scales
from rten_aot.passes.fuse import fuse
from rten_aot.passes.fuse_attention import fuse_attention
from rten_aot.passes.halve_weights import halve_weights
from rten_aot.passes.legalize import legalize
from rten_aot.passes.name_sizes import name_sizes
from rten_aot.passes.order_sizes import order_sizes
from rten_aot.passes.pack_weights import pack_weights
from rten_aot.passes.products_of_planes import products_of_planes
from rten_aot.targets.base import Machine
from rten_aot.targets.common.choices import Choice
from rten_aot.targets.cuda.target import Gpu


def optimise(
    mod: tvm.IRModule,
    machine: Machine,
    level: int,
    evaluate: Evaluate,
    note: Callable[[str], None],
    choices: Mapping[str, Choice] | None = None,
    *,
    halves: bool = False,
) -> tvm.IRModule:
    """From ``rten.*`` operators to calls of fused kernels that are ready to be scheduled.

    ``level``: 0 translates only; 1 folds constants; 2 also fuses; 3 also changes layouts and packs
    weights, where ``choices`` have the last word, and where ``halves`` asks for them as float16.
    """
    for_gpu = isinstance(machine, Gpu)
    if level >= 1:
        mod = remove_unused(mod)
        mod = fold_constants(mod, evaluate)
        mod = fold_scales(mod)
    if level >= 3:
        if not halves and not for_gpu:  # weights are packed and halved as right factors only
            mod = products_of_planes(mod, note)
        mod = remove_unused(channels_last(mod, note))
    if level >= 2 and not for_gpu:
        mod = remove_unused(fuse_attention(mod, note))
    if level >= 3:
        mod = pack_weights(mod, machine, note, choices)
        if halves:
            mod = halve_weights(mod, note)
        mod = remove_unused(mod)
    return lower(mod, fused=level >= 2, for_gpu=for_gpu)


def lower(mod: tvm.IRModule, *, fused: bool, for_gpu: bool = False) -> tvm.IRModule:
    """``rten.*`` operators to kernels."""
    mod = remove_unused(legalize(mod, for_gpu=for_gpu))
    return order_sizes(name_sizes(fuse(mod) if fused else mod))


def remove_unused(mod: tvm.IRModule) -> tvm.IRModule:
    """The module without bindings that nothing uses."""
    roots = [v.name_hint for v, f in mod.functions.items() if isinstance(f, relax.Function)]
    return relax.transform.DeadCodeElimination(roots)(mod)
