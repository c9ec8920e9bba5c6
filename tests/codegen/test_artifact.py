"""The finished library: what it needs and offers, how it loads, and how it says no."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

import rten_aot
from rten_aot.codegen.elf import read_library
from rten_aot.errors import TargetError
from rten_aot.targets import get_machine
from tests.codegen.nets import Net, assert_right, feed, run_python, write_net

NATIVE = "llvm -mcpu=native"
ALLOWED = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2"}
EXPORTS = {f"rten_aot_{name}" for name in ("create", "destroy", "error", "metadata", "run")}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_net(tmp_path_factory.mktemp("source") / "net.rten")


@pytest.fixture(scope="module")
def library(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The net with free sizes."""
    return rten_aot.compile(source, tmp_path_factory.mktemp("library") / "net.so", target=NATIVE)


@pytest.fixture(scope="module")
def fixed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The net for two pictures and two rows."""
    path = tmp_path_factory.mktemp("fixed") / "net.so"
    return rten_aot.compile(source, path, target=NATIVE, dims={"batch": 2, "count": 2})


def test_needs_and_offers_little(library: Path, fixed: Path) -> None:
    for path in (library, fixed):
        facts = read_library(path)
        assert facts.machine == platform.machine()
        assert {name for name in facts.needed if not name.startswith("ld-linux")} <= ALLOWED
        versions = [tuple(map(int, re.findall(r"\d+", version))) for version in facts.versions]
        assert versions
        assert max(versions) <= (2, 17)
        assert set(facts.exports) == EXPORTS
        assert facts.soname == "net.so"


@pytest.mark.skipif(shutil.which("readelf") is None, reason="there is no readelf here")
def test_binutils_agree(library: Path) -> None:
    def lines(*command: str) -> list[str]:
        done = subprocess.run([*command, str(library)], check=True, capture_output=True, text=True)
        return done.stdout.splitlines()

    dynamic = lines("readelf", "-dW")
    needed = {m[1] for line in dynamic if (m := re.search(r"\(NEEDED\).*\[(.*)\]", line))}
    assert {name for name in needed if not name.startswith("ld-linux")} <= ALLOWED
    assert not any("(TEXTREL)" in line or "(RPATH)" in line for line in dynamic)
    defined = lines("nm", "-D", "--defined-only")
    assert {line.split()[-1].partition("@")[0] for line in defined} == EXPORTS
    segments = [line for line in lines("readelf", "-lW") if line.split()[:1] == ["LOAD"]]
    assert segments
    # Nothing is writable and executable at once.
    assert not any({"W", "E"} <= set(line.split(maxsplit=6)[6]) for line in segments)
    (stack,) = (line for line in lines("readelf", "-lW") if "GNU_STACK" in line)
    assert " E " not in stack


@pytest.mark.parametrize("profile", [False, True])
@pytest.mark.parametrize(("target", "machine"), [("armv7", "arm"), ("cortex-a72", "aarch64")])
def test_free_sizes_on_other_machines(
    source: Path, tmp_path: Path, target: str, machine: str, profile: bool
) -> None:
    """Size arithmetic is 64-bit, and partly in floating point, where LLVM may want helpers."""
    made = rten_aot.compile(source, tmp_path / "net.so", target=target, profile=profile)
    assert read_library(made).machine == machine


def test_metadata(library: Path, fixed: Path, source: Path) -> None:
    facts = rten_aot.load(library).metadata
    assert facts["abi"] == 1
    assert [(t["name"], t["dtype"], t["shape"]) for t in facts["inputs"]] == [
        ("image", "float32", ["batch", 3, 8, 8]),
        ("rows", "int32", ["count"]),
    ]
    assert [(t["name"], t["shape"]) for t in facts["outputs"]] == [
        ("scores", ["batch", 6]),
        ("chosen", ["count", 6]),
    ]
    assert facts["sizes"]["workspace"] is None
    assert facts["sizes"]["weights"] >= 4 * (16 * 27 + 16 + 16 * 6 + 60)
    assert 0 < facts["sizes"]["code"] < 1e6
    assert facts["target"]["cpu"]
    assert set(facts["versions"]) == {"rten_aot", "tvm", "ziglang"}
    assert len(facts["model"]["sha256"]) == 64
    assert source.name not in str(facts)
    sizes = rten_aot.load(fixed).metadata["sizes"]
    assert isinstance(sizes["workspace"], int)


def test_no_trace_of_the_machine_that_compiled(library: Path, source: Path) -> None:
    content = library.read_bytes()
    folders = [source.parent, library.parent, Path.home(), Path.cwd()]
    for text in (*(str(folder) for folder in folders if len(folder.parts) > 1), "site-packages"):
        assert text.encode() not in content


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_numbers(library: Path, fixed: Path, threads: int) -> None:
    with rten_aot.load(library, num_threads=threads) as model:
        for batch, rows in ((1, [0]), (5, [9, -10, 4]), (2, [])):
            inputs = feed(batch, rows)
            assert_right(model.run(inputs), inputs)
    with rten_aot.load(fixed, num_threads=threads) as model:
        assert_right(model.run(feed()), feed())


def test_an_empty_batch(library: Path) -> None:
    inputs = feed(0, [1])
    got = rten_aot.load(library).run(inputs)
    assert got["scores"].shape == (0, 6)


def test_wrong_inputs_are_named(library: Path, fixed: Path) -> None:
    model, exact = rten_aot.load(library), rten_aot.load(fixed)
    good = feed()
    with pytest.raises(rten_aot.InputError, match='"image"'):
        model.run({**good, "image": good["image"][:, :2]})
    with pytest.raises(rten_aot.InputError, match=r'"image".*float32.*float64'):
        model.run({**good, "image": good["image"].astype(np.float64)})
    with pytest.raises(rten_aot.InputError, match='"rows"'):
        model.run({**good, "rows": good["rows"][None]})
    with pytest.raises(rten_aot.InputError, match='"rows"'):
        model.run({"image": good["image"]})
    with pytest.raises(rten_aot.InputError, match='"image"'):
        exact.run({**good, "image": feed(3)["image"]})
    assert_right(model.run(good), good)
    assert_right(exact.run(good), good)


def test_an_error_in_the_model_names_the_node_and_leaves_the_handle_usable(library: Path) -> None:
    model = rten_aot.load(library, num_threads=2)
    for bad in ([10], [0, -11], [2**31 - 1], [-(2**31)]):
        with pytest.raises(rten_aot.ModelRunError, match='"node_chosen"'):
            model.run(feed(rows=bad))
        assert_right(model.run(feed()), feed())


def test_several_threads_with_a_handle_each(library: Path) -> None:
    faults: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            with rten_aot.load(library, num_threads=1 + seed % 2) as model:
                for turn in range(20):
                    inputs = feed(1 + (seed + turn) % 4, [seed % 10], seed)
                    assert_right(model.run(inputs), inputs)
        except BaseException as err:
            faults.append(err)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults[0]


MEASURE_LOAD = """
import sys, time
import rten_aot.runtime
times = []
for _ in range(5):
    began = time.perf_counter()
    model = rten_aot.runtime.load(sys.argv[1])
    times.append(time.perf_counter() - began)
    model.close()
assert "tvm" not in sys.modules
print(min(times))
"""


def test_loads_instantly(library: Path) -> None:
    assert float(run_python(MEASURE_LOAD, library)) < 0.010


TALL = 1 << 18
"""Rows of 64 floats: 64 MiB of weights."""

MEASURE_MEMORY = """
import sys, numpy, rten_aot.runtime
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
before = resident()
model = rten_aot.runtime.load(sys.argv[1], num_threads=1)
loaded = resident()
got = model(numpy.array([0, -1], numpy.int32))[0]
print(loaded - before, resident() - before, *got[:, 0].tolist())
"""


def test_weights_are_paged_in_on_use(tmp_path: Path) -> None:
    net = Net()
    rows = net.input("rows", ("n",), "int32")
    data = np.arange(TALL * 64, dtype=np.float32).reshape(TALL, 64)
    out = net.op("Gather", data, rows, name="chosen", axis=0)
    model = net.write(tmp_path / "tall.rten", out)
    library = rten_aot.compile(model, target=NATIVE)
    size = data.nbytes
    assert size <= library.stat().st_size < size + 1.5e6
    by_load, by_run, first, last = map(float, run_python(MEASURE_MEMORY, library).split())
    assert by_load < 4e6
    # The kernel may read a few neighbouring pages with each that is touched.
    assert by_run < 8e6
    assert (first, last) == (0, float(data[-1, 0]))


def missing_features() -> list[str]:
    """Features that some CPUs have, but not this one."""
    present = set(get_machine(NATIVE).features)
    wanted = ["amx-tile", "avx512fp16", "avx512vp2intersect", "avx512f", "sve2", "sve", "dotprod"]
    found = []
    for feature in wanted:
        try:
            machine = get_machine(f"llvm -mattr=+{feature}")
        except TargetError:
            continue
        if feature not in present and feature in machine.features:
            found.append(feature)
    return found


def test_a_missing_feature_is_refused_by_name(source: Path, tmp_path: Path) -> None:
    features = missing_features()
    if not features:
        pytest.skip("this CPU has every feature")
    library = rten_aot.compile(
        source, tmp_path / "net.so", target=f"llvm -mattr=+{features[0]}", opt_level=0
    )
    with pytest.raises(rten_aot.ModelLoadError, match=re.escape(features[0])):
        rten_aot.load(library)


def test_a_general_level_beyond_this_cpu_is_refused(source: Path, tmp_path: Path) -> None:
    if platform.machine() != "x86_64" or "avx512f" in get_machine(NATIVE).features:
        pytest.skip("needs an x86-64 CPU without AVX-512")
    library = rten_aot.compile(source, tmp_path / "net.so", target="x86-64-v4", opt_level=0)
    with pytest.raises(rten_aot.ModelLoadError, match="avx512"):
        rten_aot.load(library)
