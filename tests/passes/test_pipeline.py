"""The whole list of passes: what each level does, and that all levels compute the same."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from rten_aot.passes.pipeline import optimise, remove_unused
from rten_aot.targets import get_machine
from tests.passes.modules import Body, const, module, ops, random, run, tensor

N = tirx.Var("n", "int64")
LEVELS = (0, 1, 2, 3)


def network(b: Body, x: relax.Var) -> relax.Var:
    """Convolution, batch normalisation, activation, twice, with a shortcut."""
    y = x
    for seed in (0, 1):
        y = b.conv(y, const(random(3, 3, 3, 3, seed=seed)), pads=(1, 1, 1, 1))
        y = b.call("multiply", y, const(random(3, 1, 1, seed=seed + 2)))
        y = b.call("add", y, b.call("negative", const(random(3, 1, 1, seed=seed + 4))))
        y = b.call("relu", y)
    return b.call("add", y, x)


def optimised(level: int, mod: tvm.IRModule) -> tvm.IRModule:
    result = optimise(mod, get_machine("x86-64-v3"), level, run, lambda _line: None)
    relax.analysis.well_formed(result)
    return result


def test_what_each_level_leaves() -> None:
    names = {
        level: ops(optimised(level, module(network, tensor("x", N, 3, 5, 4)))) for level in LEVELS
    }
    assert names[0].count("multiply") + names[0].count("multiply1") == 2
    assert any(name.startswith("negative") for name in names[0])
    assert not any("multiply" in name or "negative" in name for name in names[1])
    assert len(names[2]) == 2
    assert all(name.startswith("fused_conv") for name in names[2])
    # Three channels come and go as the model has them.
    assert names[3][0].startswith("transpose")
    assert sum("conv_packed" in name for name in names[3]) == 2


@pytest.mark.parametrize("size", [2, N])
def test_levels_compute_the_same(size: int | tirx.Var) -> None:
    x = random(2, 3, 5, 4, seed=9)
    results = []
    for level in LEVELS:
        mod = optimised(level, module(network, tensor("x", size, 3, 5, 4)))
        executable = tvm.compile(mod, target=tvm.target.Target("llvm"))
        machine = relax.VirtualMachine(executable, tvm.cpu())
        results.append(machine["main"](tvm.runtime.tensor(x))[0].numpy())
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], rtol=1e-4, atol=1e-4)


def test_unused_work_and_unused_branches() -> None:
    branch = module(lambda b, x: b.call("abs", x), tensor("x", 2))["main"]

    def build(b: Body, x: relax.Var) -> relax.Var:
        b.call("exp", b.call("log", x))
        return b.call("relu", x)

    mod = remove_unused(module(build, tensor("x", 2), branch=branch))
    assert ops(mod) == ["relu"]
    assert ops(mod, "branch") == ["abs"]
