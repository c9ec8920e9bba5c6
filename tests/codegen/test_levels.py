"""Artifacts for several CPUs: what they hold, what they share, and which code a CPU runs."""

from __future__ import annotations

import dataclasses
import json
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest

import rten_aot
from rten_aot import driver
from rten_aot.cli.artifact import read_metadata
from rten_aot.options import Emit
from rten_aot.runtime import abi
from rten_aot.runtime.library import Library
from rten_aot.targets import Machine, get_machines, packing_machine
from tests.codegen.nets import Net, assert_right, build_program, feed, write_net
from tests.codegen.test_artifact_in_c import PROGRAM, check

X86 = "x86-64-v2,x86-64-v3,x86-64-v4"
ARM = "cortex-a53,neoverse-n1"
HERE = {"x86_64": X86, "aarch64": "aarch64,neoverse-n1"}.get(platform.machine(), "")
SHOW = Path(__file__).with_name("show_level.c")

pytestmark = pytest.mark.skipif(not HERE, reason="no levels of this architecture have names")
x86_only = pytest.mark.skipif(platform.machine() != "x86_64", reason="runs code for x86-64")


def weights(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32) / 8


def write_wide(path: Path) -> Path:
    """Convolutions (Winograd, direct, grouped) and products, of many columns or odd numbers."""
    net = Net()
    image = net.input("image", ("batch", 32, 9, 9))

    def conv(x: int, w: Any, groups: int, name: str) -> int:
        return net.op(
            "Conv", x, w, name=name, auto_pad="NotSet", pads=[w.shape[2] // 2] * 4,
            groups=groups, strides=[1, 1], dilations=[1, 1],
        )  # fmt: skip

    y = conv(image, weights(96, 32, 3, 3), 1, "winograd")
    y = net.op("Relu", y, name="relu")
    y = conv(y, weights(75, 96, 1, 1), 1, "direct")
    y = conv(y, weights(99, 25, 3, 3), 3, "grouped")
    y = net.op("GlobalAveragePool", y, name="pool")
    y = net.op("Flatten", y, name="flat", axis=1)
    y = net.op("MatMul", y, weights(99, 200), name="product")
    return net.write(path, net.op("MatMul", y, weights(200, 7), name="narrow"))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_net(tmp_path_factory.mktemp("source") / "net.rten")


@pytest.fixture(scope="module")
def library(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rten_aot.compile(source, tmp_path_factory.mktemp("levels") / "libnet.so", target=HERE)


def test_the_level_in_use_is_told_once_it_is_known(library: Path) -> None:
    names = [level.name for level in get_machines(HERE)]
    before = read_metadata(library)["target"]
    assert before["levels"] == names
    assert "level" not in before
    assert before["features"] == list(get_machines(HERE)[-1].features)
    runs = [level for level in get_machines(HERE) if level.runs_here()]
    if not runs:
        pytest.skip("this CPU has none of the levels")
    with rten_aot.load(library) as model:
        target = model.metadata["target"]
        assert (target["level"], target["levels"]) == (runs[0].name, names)
        assert target["features"] == list(runs[0].features)
        assert_right(model.run(feed(5)), feed(5))


def impossible(name: str) -> Machine:
    """x86-64-v2 that asks for features which no CPU has together: AMD's of 2011, Intel's."""
    machine = get_machines("x86-64-v2")[0]
    features = (*machine.features, "amx-fp16", "fma4")
    return dataclasses.replace(machine, name=name, features=features)


@x86_only
def test_levels_that_the_cpu_lacks_are_passed_over(source: Path, tmp_path: Path) -> None:
    levels = (impossible("first"), impossible("second"), *get_machines("x86-64-v2"))
    with patch.object(driver, "get_machines", lambda *_: levels):
        made = rten_aot.compile(source, tmp_path / "net.so")
    with rten_aot.load(made) as model:
        assert model.metadata["target"]["level"] == levels[-1].name
        assert_right(model.run(feed(2)), feed(2))


@x86_only
def test_a_cpu_below_the_lowest_level(source: Path, tmp_path: Path) -> None:
    levels = (impossible("first"), impossible("last"))
    with patch.object(driver, "get_machines", lambda *_: levels):
        made = rten_aot.compile(source, tmp_path / "net.so")
    message = r"this CPU lacks .*fma4, which the artifact needs \(compiled for last\)$"
    with pytest.raises(rten_aot.ModelLoadError, match=message):
        rten_aot.load(made)
    library = Library(made)
    library.read_level()
    assert "level" not in library.metadata["target"]
    library.close()


def test_the_order_of_names_does_not_matter(source: Path, library: Path, tmp_path: Path) -> None:
    backwards = ",".join(reversed(HERE.split(",")))
    other = rten_aot.compile(source, tmp_path / "libnet.so", target=backwards)
    assert other.read_bytes() == library.read_bytes()


def test_one_name_says_nothing_of_levels(source: Path, tmp_path: Path) -> None:
    name = HERE.partition(",")[0]
    target = read_metadata(rten_aot.compile(source, tmp_path / "net.so", target=name))["target"]
    assert target["levels"] == []
    assert "level" not in target


def test_weights_are_stored_once(tmp_path: Path) -> None:
    net = Net()
    x = net.input("x", ("batch", 500))
    y = net.op("MatMul", x, weights(500, 1000), name="product")
    source = net.write(tmp_path / "large.rten", y)
    several = rten_aot.compile(source, tmp_path / "several.so", target=HERE)
    code = read_metadata(several)["sizes"]["code"]
    for name in HERE.split(","):
        single = rten_aot.compile(source, tmp_path / "single.so", target=name)
        assert several.stat().st_size - code <= 1.1 * single.stat().st_size, name


@x86_only
@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3"])
def test_shorter_vectors_read_what_is_packed_for_longer_ones(level: str, tmp_path: Path) -> None:
    if not get_machines(level)[0].runs_here():
        pytest.skip(f"this CPU is no {level}")
    source = write_wide(tmp_path / "wide.rten")
    packing = packing_machine(get_machines(X86))
    with patch.object(driver, "packing_machine", lambda _levels: packing):
        shared = rten_aot.compile(source, tmp_path / "shared.so", target=level)
    plain = rten_aot.compile(source, tmp_path / "plain.so", target=level, opt_level=0)
    assert read_metadata(shared)["sizes"] != read_metadata(plain)["sizes"]
    for batch in (1, 3):
        image = np.random.default_rng(batch).standard_normal((batch, 32, 9, 9), np.float32)
        (got,), (want,) = rten_aot.load(shared, 2)(image), rten_aot.load(plain, 1)(image)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_the_workspace_suffices_for_every_level(tmp_path: Path) -> None:
    net = Net()
    x = net.input("image", (2, 32, 9, 9))
    y = net.op(
        "Conv", x, weights(48, 32, 3, 3), name="conv", auto_pad="NotSet", pads=[1, 1, 1, 1],
        groups=1, strides=[1, 1], dilations=[1, 1],
    )  # fmt: skip
    source = net.write(tmp_path / "fixed.rten", net.op("Relu", y, name="relu"))
    needed: list[int] = []
    build = driver.make_library
    with patch.object(driver, "make_library") as spy:
        spy.side_effect = lambda levels, *rest, **options: (
            needed.extend(level.code.workspace for level in levels),
            build(levels, *rest, **options),
        )
        made = rten_aot.compile(source, tmp_path / "fixed.so", target=HERE)
    assert len(needed) == len(HERE.split(","))
    assert read_metadata(made)["sizes"]["workspace"] == max(needed)


def test_an_object_for_several(source: Path, tmp_path: Path) -> None:
    made = rten_aot.compile(source, tmp_path / "net.o", target=HERE, emit="obj")
    check_output(build_program(tmp_path, PROGRAM, made, '-DHEADER="rten_aot.h"'))


def test_profiles_are_those_of_the_level(source: Path, tmp_path: Path) -> None:
    made = rten_aot.compile(source, tmp_path / "net.so", target=HERE, profile=True)
    with rten_aot.load(made, 1) as model:
        model.run(feed())
        target = model.metadata["target"]
        prefix = f"level{target['levels'].index(target['level'])}_"
        steps = model.metadata["profile"]
        assert len(model.take_profile().steps) == len(steps)
        kernels = [step["kernel"] for step in steps if step["kernel"] != "copy"]
        assert kernels
        assert all(kernel.startswith(prefix) for kernel in kernels)


@pytest.mark.parametrize("emit", ["tir", "llvm", "asm"])
def test_stages_are_of_one_cpu(source: Path, emit: Emit, tmp_path: Path) -> None:
    message = f'"{emit}" is a stage of the code for one CPU, but the target is "{HERE}"\n'
    with pytest.raises(rten_aot.CompileError) as caught:
        rten_aot.compile(source, tmp_path / "out", target=HERE, emit=emit)
    assert str(caught.value) == message + "hint: name one of them"


def test_records_are_of_one_cpu(source: Path, tmp_path: Path) -> None:
    with pytest.raises(rten_aot.CompileError, match=r'those of ".*" share one packing\nhint: '):
        rten_aot.compile(source, tmp_path / "net.so", target=HERE, db=tmp_path / "tune.json")


class Emulator(NamedTuple):
    """How programs for an architecture run here: triple for zig, emulator, folder of libraries."""

    zig: str
    command: str
    libraries: Path

    def run(self, cpu: str, program: Path) -> subprocess.CompletedProcess[str]:
        """Run a program on an emulated CPU; the test is skipped where that is not possible."""
        if shutil.which(self.command) is None or not self.libraries.is_dir():
            pytest.skip(f"needs {self.command} and the C library in {self.libraries}")
        return subprocess.run(
            [self.command, "-L", self.libraries, "-cpu", cpu, program],
            capture_output=True,
            text=True,
            check=False,
        )


ARM_EMULATOR = Emulator(
    "aarch64-linux-gnu.2.17", "qemu-aarch64-static", Path("/usr/aarch64-linux-gnu")
)
X86_EMULATOR = Emulator("x86_64-linux-gnu.2.17", "qemu-x86_64-static", Path("/"))


def check_output(program: Path) -> None:
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    check(done.stdout)


def programs(folder: Path, library: Path, emulator: Emulator) -> tuple[Path, Path]:
    """One that shows the level, and one that runs the net."""
    made = []
    for source in (SHOW, PROGRAM):
        own = folder / source.stem
        own.mkdir()
        options = ('-DHEADER="rten_aot.h"', f"-Wl,-rpath,{library.parent}")
        made.append(build_program(own, source, library, *options, target=emulator.zig))
    return made[0], made[1]


@pytest.mark.emulated
@pytest.mark.parametrize(
    ("target", "emulator", "cpus"),
    [
        pytest.param(
            ARM,
            ARM_EMULATOR,
            {"cortex-a53": "cortex-a53", "cortex-a72": "cortex-a53", "neoverse-n1": "neoverse-n1"},
            id="aarch64",
        ),
        pytest.param(
            X86,
            X86_EMULATOR,
            {"Nehalem": "x86-64-v2", "Haswell": "x86-64-v3"},
            id="x86-64",
            marks=x86_only,
        ),
    ],
)
def test_each_cpu_runs_its_own_level(
    source: Path, target: str, emulator: Emulator, cpus: dict[str, str], tmp_path: Path
) -> None:
    made = rten_aot.compile(source, tmp_path / "libnet.so", target=target)
    show, run = programs(tmp_path, made, emulator)
    for cpu, level in cpus.items():
        shown = emulator.run(cpu, show)
        assert shown.returncode == 0, shown.stderr
        assert json.loads(shown.stdout)["target"]["level"] == level
        done = emulator.run(cpu, run)
        assert done.returncode == 0, done.stderr
        check(done.stdout)


@pytest.mark.emulated
@pytest.mark.parametrize(
    ("target", "emulator", "cpu", "message"),
    [
        pytest.param(
            "neoverse-n1",
            ARM_EMULATOR,
            "cortex-a53",
            "this CPU lacks the features dotprod, fullfp16, lse, rcpc, rdm, "
            "which the artifact needs (compiled for neoverse-n1)\n",
            id="one",
        ),
        pytest.param(
            X86,
            X86_EMULATOR,
            "Conroe",
            "this CPU lacks the features cx16, popcnt, sse4.1, sse4.2, "
            "which the artifact needs (compiled for x86-64-v2)\n",
            id="several",
            marks=x86_only,
        ),
    ],
)
def test_a_cpu_without_the_features_is_refused(
    source: Path, target: str, emulator: Emulator, cpu: str, message: str, tmp_path: Path
) -> None:
    made = rten_aot.compile(source, tmp_path / "libnet.so", target=target)
    show, _ = programs(tmp_path, made, emulator)
    done = emulator.run(cpu, show)
    assert done.returncode == abi.UNSUPPORTED_DEVICE
    assert done.stderr.endswith(message)
