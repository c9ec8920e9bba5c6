"""``rten-aot profile`` on the example network, and the inputs that models are measured on."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rten_aot
from rten_aot.cli.arrays import inputs_to_measure
from rten_aot.runtime import InputError, TensorInfo
from tests.cli.conftest import Command, FakeDriver

NATIVE = "llvm -mcpu=native"
PEAKS = r"^measured peaks: [\d.]+ GFLOP/s; copying [\d.]+ GB/s in 131\.1 kB, .* in 134\.2 MB$"
HEADINGS = ["share", "ms", "calls", "GFLOP/s", "GB/s", "of peak", "kernel", "nodes"]


@pytest.fixture(scope="module")
def source(root: Path) -> Path:
    return root / "examples/digits/digits.rten"


@pytest.fixture(scope="module")
def library(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("digits") / "digits.so"
    return rten_aot.compile(source, path, target=NATIVE, profile=True)


def warnings_of(err: str) -> list[str]:
    """Lines on standard error, which may only say that the machine is busy."""
    lines = err.splitlines()
    assert all(line.startswith("warning: the ") for line in lines), err
    return lines


def fields(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_table(command: Command, library: Path, threads: str) -> None:
    sizes = ("--shape", "input=2,1,8,8")
    done = command("profile", library, *sizes, "--threads", threads, "--runs", "7")
    assert done.code == 0
    warnings_of(done.err)
    title, peaks, headings, *rows = done.out.splitlines()
    assert title.startswith(f"{library}: median of 7 runs ")
    assert re.match(PEAKS, peaks)
    assert fields(headings) == HEADINGS
    shares = [float(row.split()[0]) for row in rows]
    assert sum(shares) == pytest.approx(100, abs=0.1 * len(rows))
    assert fields(rows[-1])[-1] == "(outside)"
    assert shares[:-1] == sorted(shares[:-1], reverse=True)
    (conv,) = (row for row in rows if "conv_packed_add_relu" in row and "(Conv)" in row)
    assert len(fields(conv)) == len(HEADINGS)
    assert fields(conv)[5].split()[1:] in (["%", "c"], ["%", "m"])


def test_facts(command: Command, library: Path) -> None:
    found = []
    for batch in (1, 3):
        done = command("profile", library, "--dim", f"batch={batch}", "--json", "--seconds", "0.1")
        assert done.code == 0
        facts = json.loads(done.out)
        assert facts["runs"] >= 5
        assert 0 < facts["seconds"]["p10"] <= facts["seconds"]["median"] <= facts["seconds"]["p90"]
        assert facts["peaks"]["flops_per_second"] > 0
        shares = sum(k["share"] for k in facts["kernels"])
        total = facts["outside_seconds"] + sum(k["seconds"] for k in facts["kernels"])
        assert shares + facts["outside_seconds"] / total == pytest.approx(1)
        for kernel in facts["kernels"]:
            assert kernel["calls"] >= 1
            assert kernel["limit"] in ("compute", "memory")
            assert 0 <= kernel["limit_seconds"]
        found.append(sum(k["flops"] for k in facts["kernels"]))
    assert found[0] > 0
    assert found[1] == 3 * found[0]


def test_rows_can_be_left_out(command: Command, library: Path) -> None:
    words = ("--dim", "batch=1", "--runs", "5")
    whole = command("profile", library, *words).out.splitlines()
    short = command("profile", library, *words, "--top", "2").out.splitlines()
    assert fields(short[-1])[-1] == f"({len(whole) - 3 - 1 - 2} more)"
    assert len(short) == 3 + 2 + 2


def test_calls_of_one_kernel(command: Command, tmp_path: Path) -> None:
    from tests.codegen.nets import Net

    net = Net()
    y = net.input("x", (4, 4))
    for name in ("first", "second", "third"):
        y = net.op("MatMul", y, np.eye(4, dtype=np.float32), name=name)
    path = net.write(tmp_path / "twice.rten", y)
    (row,) = [r for r in command("profile", path, "--runs", "5").out.splitlines() if "gemm" in r]
    assert row.split()[3] == "3"
    assert row.endswith("node_first (MatMul), node_second (MatMul), node_third (MatMul)")
    done = command("profile", path, "--runs", "5", "--calls", "--threads", "1")
    rows = [r for r in done.out.splitlines() if "gemm" in r]
    assert [r.split()[3] for r in rows] == ["1", "1", "1"]
    assert {fields(r)[-1] for r in rows} == {
        f"node_{name} (MatMul)" for name in ("first", "second", "third")
    }


def test_a_model_is_compiled_first(command: Command, source: Path) -> None:
    done = command("profile", source, "--dim", "batch=2", "-O1", "--runs", "5", "--json")
    assert done.code == 0
    kernels = json.loads(done.out)["kernels"]
    assert not any("fused" in k["kernel"] for k in kernels)


def test_options_reach_the_compiler(
    command: Command, driver: FakeDriver, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.error = rten_aot.CompileError("enough")
    words = ("-mcpu=native", "--shape", "x=1,h", "--dim", "h=2", "-O2", "--weights", "fp16")
    assert command("profile", source, *words).code == 1
    options = driver.options
    del options["progress"], options["output"]
    assert options == {
        "model": source,
        "target": NATIVE,
        "shapes": {"x": (1, "h")},
        "dims": {"h": 2},
        "opt_level": 2,
        "emit": "lib",
        "explain": None,
        "symbol_prefix": None,
        "libc": None,
        "profile": True,
        "db": None,
        "warn": None,
        "weights": "fp16",
    }


def test_a_library_that_times_nothing(command: Command, source: Path, tmp_path: Path) -> None:
    plain = rten_aot.compile(source, tmp_path / "plain.so", target=NATIVE)
    done = command("profile", plain, "--dim", "batch=1")
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"rten-aot: error: {plain}: was compiled without times of its kernels\n"
        "hint: compile it with --profile\n"
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 1, 'input "input" has the free dimensions [batch, 1, 8, 8]\nhint: give their sizes'),
        (["--dim", "bach=1"], 1, 'no free dimension "bach"; did you mean "batch"?'),
        (["--dim", "xyz=1"], 1, 'no free dimension "xyz"; free dimensions: "batch"'),
        (["--shape", "inptu=1,1,8,8"], 1, 'no input "inptu"; did you mean "input"?'),
        (["--shape", "input=1,1,8,9"], 1, "has shape [batch, 1, 8, 8], got [1, 1, 8, 9]"),
        (["--shape", "input=1,1,8"], 1, "has shape [batch, 1, 8, 8], got [1, 1, 8]"),
        (["--runs", "0"], 2, 'argument --runs: "0" is not a positive number'),
        (["--seconds", "0"], 2, 'argument --seconds: "0" is not a positive number'),
        (["--seconds", "inf"], 2, 'argument --seconds: "inf" is not a positive number'),
        (["--top", "x"], 2, 'argument --top: "x" is not a positive number'),
    ],
)
def test_wrong_words(
    command: Command, library: Path, words: Sequence[str], code: int, message: str
) -> None:
    done = command("profile", library, *words)
    assert (done.code, done.out) == (code, "")
    assert message in done.err


INFOS = [TensorInfo("a", "float32", ("n", 2)), TensorInfo("b", "int32", (None, "n"))]


def chosen(
    shapes: Mapping[str, Any] | None = None,
    dims: Mapping[str, int] | None = None,
    files: Sequence[str] = (),
) -> dict[str, tuple[int, ...]]:
    args = Namespace(
        shape=list((shapes or {}).items()),
        dim=list((dims or {}).items()),
        input=list(files),
        inputs=None,
    )
    return {name: array.shape for name, array in inputs_to_measure(INFOS, args).items()}


def test_sizes_come_from_words_and_from_files(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((7, 2), np.float32))
    file = f"a={tmp_path / 'a.npy'}"
    assert chosen({"b": (3, "n")}, {"n": 5}) == {"a": (5, 2), "b": (3, 5)}
    assert chosen({"a": (4, 2), "b": (3, 4)}) == {"a": (4, 2), "b": (3, 4)}
    assert chosen({"b": (3, None)}, files=[file]) == {"a": (7, 2), "b": (3, 7)}
    assert chosen({"a": (4, None), "b": (3, None)}) == {"a": (4, 2), "b": (3, 4)}
    assert chosen({"a": ("k", 2), "b": (3, "n")}, {"n": 1}, [file]) == {"a": (7, 2), "b": (3, 1)}
    with pytest.raises(InputError, match=r'input "b" has the free dimensions \[\?, 7\]'):
        chosen(files=[file])
    np.save(tmp_path / "a.npy", np.ones((7, 3), np.float32))
    with pytest.raises(InputError, match=r'input "a" has shape \[n, 2\], got \[7, 3\]'):
        chosen(files=[file])
