"""Libraries compiled to be profiled: what they count, and that others know nothing of it."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rten_aot
from rten_aot.codegen.elf import read_library
from rten_aot.runtime import ModelRunError, Profile, abi
from tests.codegen.nets import Net, assert_right, build_program, feed, write_net
from tests.ops.test_control_flow import GraphMaker, branch
from tests.support.rten_writer import write_model

NATIVE = "llvm -mcpu=native"
CONV_FLOPS = 2 * 16 * 8 * 8 * 27
PRODUCT_FLOPS = 2 * 16 * 6


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_net(tmp_path_factory.mktemp("source") / "net.rten")


@pytest.fixture(scope="module")
def free(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The net with free sizes."""
    path = tmp_path_factory.mktemp("free") / "net.so"
    return rten_aot.compile(source, path, target=NATIVE, profile=True)


@pytest.fixture(scope="module")
def fixed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The net for two pictures and two rows."""
    path, dims = tmp_path_factory.mktemp("fixed") / "net.so", {"batch": 2, "count": 2}
    return rten_aot.compile(source, path, target=NATIVE, dims=dims, profile=True)


@dataclass
class Profiled:
    """A model, and its steps by the operators in them."""

    model: rten_aot.runtime.Model

    def step(self, op: str, profile: Profile) -> Any:
        """The last step that has an operator in it: transposes for it come before."""
        steps = self.model.metadata["profile"]
        *_, found = (i for i, s in enumerate(steps) if op in [n["op"] for n in s["nodes"]])
        return profile.steps[found]


def compiled(graph_or_path: Any, folder: Path, **options: Any) -> Profiled:
    path = graph_or_path
    if not isinstance(path, Path):
        path = write_model(graph_or_path, folder / "model.rten")
    library = rten_aot.compile(path, target=NATIVE, profile=True, **options)
    return Profiled(rten_aot.load(library, num_threads=1))


def test_steps_say_what_they_are(fixed: Path) -> None:
    steps = rten_aot.load(fixed).metadata["profile"]
    nodes = [node for step in steps for node in step["nodes"]]
    assert {"name": "node_conv", "op": "Conv"} in nodes
    assert {n["op"] for n in nodes} >= {"Conv", "Relu", "MatMul", "Sigmoid", "Gather"}
    assert all(step["kernel"].startswith("rten_k") for step in steps)
    by_op = {node["op"]: step for step in steps for node in step["nodes"]}
    assert by_op["Conv"] is by_op["Relu"]
    assert by_op["Conv"]["flops"] == 2 * CONV_FLOPS
    assert by_op["MatMul"]["flops"] == 2 * PRODUCT_FLOPS
    assert by_op["Gather"]["bytes"] == 4 * (2 * 6 + 2 + 2 * 6)


@pytest.mark.parametrize("threads", [1, 2])
def test_times_and_counts(fixed: Path, free: Path, threads: int) -> None:
    for path in (fixed, free):
        with rten_aot.load(path, num_threads=threads) as model:
            inputs = feed(2, [3, -1])
            assert_right(model.run(inputs), inputs)
            model.run(inputs)
            profile = model.take_profile()
            spent = sum(step.nanoseconds for step in profile.steps)
            assert 0 < spent <= profile.nanoseconds
            assert all(step.calls == 2 for step in profile.steps)
            assert all(step.nanoseconds > 0 for step in profile.steps)
            conv = Profiled(model).step("Conv", profile)
            assert conv.flops == 2 * 2 * CONV_FLOPS
            # Of packed weights, what is loaded: not their padding.
            assert conv.bytes == 2 * 4 * (2 * 3 * 64 + 16 * 27 + 16 + 2 * 16 * 64)


def test_free_sizes_count_by_run(free: Path) -> None:
    profiled = Profiled(rten_aot.load(free))
    steps = profiled.model.metadata["profile"]
    (conv,) = (s for s in steps if "conv" in s["kernel"])
    assert not {"flops", "bytes"} & conv.keys()
    for batch in (1, 5, 0):
        profiled.model.run(feed(batch, [1, 2, 3]))
        profile = profiled.model.take_profile()
        assert profiled.step("Conv", profile).flops == batch * CONV_FLOPS
        assert profiled.step("MatMul", profile).flops == batch * PRODUCT_FLOPS
        assert profiled.step("Gather", profile).bytes == 4 * (3 * 6 + 3 + 3 * 6)


def test_taking_starts_anew(fixed: Path) -> None:
    first, second = rten_aot.load(fixed), rten_aot.load(fixed)
    first.run(feed())
    assert all(step.calls == 0 for step in second.take_profile().steps)
    assert all(step.calls == 1 for step in first.take_profile().steps)
    empty = first.take_profile()
    assert empty.nanoseconds == 0
    assert all(step.calls == step.nanoseconds == step.bytes == 0 for step in empty.steps)


@pytest.mark.parametrize("shape", [(2, 3), ("rows", 3)])
def test_branches_count_where_they_run(shape: tuple[Any, ...], tmp_path: Path) -> None:
    then = branch(lambda g: g.op("Relu", g.capture("x")))
    otherwise = branch(lambda g: g.op("Neg", g.op("Abs", g.capture("x"))))
    main = GraphMaker()
    main.input("x", shape)
    condition = main.input("c", (), "int32")
    chosen = main.op("If", condition, then_branch=then, else_branch=otherwise)
    profiled = compiled(main.graph(chosen), tmp_path)
    for truth in (1, 0):
        profiled.model.run({"x": np.ones((2, 3), np.float32), "c": np.int32(truth)})
        profile = profiled.model.take_profile()
        assert profiled.step("Relu", profile).calls == truth
        assert profiled.step("Abs", profile).calls == 1 - truth


def test_loops_count_every_iteration(tmp_path: Path) -> None:
    body = GraphMaker()
    body.input("i", (), "int32")
    condition = body.input("c", (), "int32")
    v = body.input("v", (2, 2))
    doubled = body.op("MatMul", v, body.constant("w", np.full((2, 2), 2, np.float32)))
    main = GraphMaker()
    limit, x = main.input("n", (), "int32"), main.input("x", (2, 2))
    go_on = main.constant("go", np.int32(1))
    result = main.op("Loop", limit, go_on, x, body=body.graph(condition, doubled))
    profiled = compiled(main.graph(result), tmp_path)
    for count in (3, 0, 7):
        profiled.model.run({"n": np.int32(count), "x": np.ones((2, 2), np.float32)})
        step = profiled.step("MatMul", profiled.model.take_profile())
        assert (step.calls, step.flops) == (count, count * 2 * 8)


def test_copies_are_steps(tmp_path: Path) -> None:
    net = Net()
    x = net.input("x", (4, 5))
    profiled = compiled(net.write(tmp_path / "copy.rten", x), tmp_path)
    profiled.model.run({"x": np.ones((4, 5), np.float32)})
    (step,) = profiled.model.metadata["profile"]
    assert step == {"kernel": "copy", "nodes": [], "flops": 0, "bytes": 160}
    (times,) = profiled.model.take_profile().steps
    assert (times.calls, times.bytes) == (1, 160)


def test_sizes_that_the_model_computes(tmp_path: Path) -> None:
    net = Net()
    x = net.input("x", ("n",))
    found = net.op("NonZero", x, name="found")
    doubled = net.op("Mul", found, np.int32(2), name="doubled")
    profiled = compiled(net.write(tmp_path / "computed.rten", doubled), tmp_path)
    for count in (0, 3, 50):
        values = np.zeros(60, np.float32)
        values[:count] = 1
        got = profiled.model.run({"x": values})["doubled"]
        np.testing.assert_array_equal(got, 2 * np.arange(count)[None])
        assert profiled.step("Mul", profiled.model.take_profile()).bytes == 4 * (2 * count + 1)


def test_without_optimisation(source: Path, tmp_path: Path) -> None:
    profiled = compiled(source, tmp_path, output=tmp_path / "plain.so", opt_level=0)
    inputs = feed(2)
    assert_right(profiled.model.run(inputs), inputs)
    profile = profiled.model.take_profile()
    assert profiled.step("Relu", profile) is not profiled.step("Sigmoid", profile)
    assert sum(step.flops for step in profile.steps) == 2 * (CONV_FLOPS + PRODUCT_FLOPS)


def test_peaks(fixed: Path) -> None:
    with rten_aot.load(fixed, num_threads=2) as model:
        assert 1e8 < model.measure_peak() < 1e14
        for size in (1, 1 << 14, 1 << 22):
            assert 1e7 < model.measure_peak(size) < 1e14
        inputs = feed()
        assert_right(model.run(inputs), inputs)
        with pytest.raises(ModelRunError, match=r"^out of memory: \d+ bytes to measure with$"):
            model.measure_peak(1 << 60)


def test_off_leaves_no_trace(source: Path, fixed: Path, tmp_path: Path) -> None:
    path, dims = tmp_path / "net.so", {"batch": 2, "count": 2}
    plain = rten_aot.compile(source, path, target=NATIVE, dims=dims, profile=False)
    first = plain.read_bytes()
    rten_aot.compile(source, path, target=NATIVE, dims=dims)
    assert plain.read_bytes() == first
    for name in ("profile", "peak", "step"):
        assert name.encode() not in first
    functions = {"rten_aot_profile", "rten_aot_peak"}
    assert set(read_library(fixed).exports) - set(read_library(plain).exports) == functions
    facts = [dict(rten_aot.load(library).metadata) for library in (fixed, plain)]
    facts[0].pop("profile")
    sizes = [fact.pop("sizes") for fact in facts]
    assert facts[0] == facts[1]
    assert sizes[0]["code"] > sizes[1]["code"]


@pytest.mark.parametrize("call", [lambda m: m.take_profile(), lambda m: m.measure_peak()])
def test_a_library_that_times_nothing(
    source: Path, fixed: Path, tmp_path: Path, call: Callable[[Any], object]
) -> None:
    library = rten_aot.compile(source, tmp_path / "net.so", target=NATIVE)
    with rten_aot.load(library) as model, pytest.raises(ModelRunError) as error:
        call(model)
    assert str(error.value) == (
        f"{library}: was compiled without times of its kernels\nhint: compile it with --profile"
    )
    closed = rten_aot.load(fixed)
    closed.close()
    with pytest.raises(ModelRunError, match="the model is closed"):
        call(closed)


def test_wrong_arguments_in_c(fixed: Path) -> None:
    library = ctypes.CDLL(str(fixed))
    library.rten_aot_error.restype = ctypes.c_char_p
    handle = ctypes.c_void_p()
    assert library.rten_aot_create(None, ctypes.byref(handle)) == abi.OK
    steps = (abi.Step * 100)()
    rate = ctypes.c_double()
    wrong = [
        (library.rten_aot_profile, (None, steps, 1, None), "model is NULL"),
        (library.rten_aot_profile, (handle, steps, 100, None), "expected room for "),
        (library.rten_aot_peak, (None, ctypes.c_int64(0), ctypes.byref(rate)), "model is NULL"),
        (library.rten_aot_peak, (handle, ctypes.c_int64(0), None), "per_second is NULL"),
    ]
    for function, arguments, message in wrong:
        assert function(*arguments) == abi.BAD_ARGUMENT
        assert library.rten_aot_error().decode().startswith(message)
    library.rten_aot_destroy(handle)


PROGRAM = """
#include <stdio.h>
#include "net.h"

int main(void) {
  static float pixels[2 * 3 * 8 * 8];
  int32_t rows[2] = {0, 1};
  int64_t image_shape[4] = {2, 3, 8, 8}, rows_shape[1] = {2};
  DLTensor in[2] = {{pixels, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, image_shape, NULL, 0},
                    {rows, {kDLCPU, 0}, 1, {kDLInt, 32, 1}, rows_shape, NULL, 0}};
  DLTensor out[2] = {{0}, {0}};
  rten_aot_step steps[64];
  int64_t total = 0, flops = 0, calls = 0;
  double peak = 0;
  rten_aot_model *model;
  if (my_create(NULL, &model) || my_run(model, in, 2, out, 2)) return 1;
  if (my_profile(model, steps, COUNT, &total)) { puts(my_error()); return 2; }
  for (int i = 0; i < COUNT; ++i) flops += steps[i].flops, calls += steps[i].calls;
  if (my_peak(model, 1 << 16, &peak) || peak <= 0) return 3;
  printf("%lld %lld %d\\n", (long long)flops, (long long)calls, total > 0);
  my_destroy(model);
  return 0;
}
"""


@pytest.mark.parametrize("emit", ["lib", "obj"])
def test_from_c_under_another_name(source: Path, tmp_path: Path, emit: Any) -> None:
    options: dict[str, Any] = {"target": NATIVE, "symbol_prefix": "my"}
    out = tmp_path / ("libnet.so" if emit == "lib" else "net.o")
    made = rten_aot.compile(source, out, emit=emit, profile=True, **options)
    rten_aot.compile(source, tmp_path / "net.h", emit="header", **options)
    program = tmp_path / "main.c"
    program.write_text(PROGRAM)
    whole = rten_aot.compile(source, tmp_path / "count.so", target=NATIVE, profile=True)
    count = len(rten_aot.load(whole).metadata["profile"])
    words = (f"-DCOUNT={count}", f"-I{tmp_path}", "-Wl,-rpath,$ORIGIN")
    built = build_program(tmp_path, program, made, *words)
    done = subprocess.run([built], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(2 * (CONV_FLOPS + PRODUCT_FLOPS)), str(count), "1"]
