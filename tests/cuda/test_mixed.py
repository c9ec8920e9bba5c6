"""Models of which the CPU computes some operators: what is said of it, and what is copied."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import rten_aot
from rten_aot.cli import main
from rten_aot.codegen import nvrtc
from tests.cuda import emulator
from tests.cuda.emulator import Emulator
from tests.support.cases import Case, _converted, write_cases

X = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
BOXES = np.array([[[0, 0, 1, 1], [0, 0, 1, 0.9], [2, 2, 3, 3]]], np.float32)


@pytest.fixture(autouse=True)
def text_for_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "compile_image", emulator.text_image)


def best_of_sums(path: Path, batch: int | str = "batch") -> Path:
    """Y = 2 * (the three greatest of each row of x + weights), and where they are."""
    weights = np.arange(8, dtype=np.float32)
    nodes = [
        helper.make_node("Add", ["x", "weights"], ["sum"], name="add"),
        helper.make_node("TopK", ["sum", "k"], ["best", "where"], name="best"),
        helper.make_node("Mul", ["best", "two"], ["y"], name="double"),
    ]
    stored = {"weights": weights, "k": np.array([3], np.int64), "two": np.array(2, np.float32)}
    graph = helper.make_graph(
        nodes,
        "mixed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 8])],
        [helper.make_empty_tensor_value_info(name) for name in ("y", "where")],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    path.write_bytes(bytes(_converted(graph)))
    return path


def copies(gpu: Emulator) -> list[str]:
    return [line[8:] for line in gpu.take_log() if line.startswith("cuMemcpy")]


def test_what_the_cpu_computes_is_copied(tmp_path: Path, gpu: Emulator) -> None:
    notes: list[str] = []
    library = rten_aot.compile(
        best_of_sums(tmp_path / "mixed.rten"), tmp_path / "mixed.so", target="cuda -arch=sm_80",
        explain=notes.append,
    )  # fmt: skip
    assert [note for note in notes if "on the CPU" in note] == [
        "top_k: runs on the CPU: its loops depend on each other"
    ]
    with rten_aot.load(library) as model:
        for x in (X, X[:1], np.tile(X, (40, 1))):
            sums = x + np.arange(8, dtype=np.float32)
            where = np.argsort(-sums, axis=1, kind="stable")[:, :3]
            gpu.take_log()
            results = model.run({"x": x})
            rows = len(x)
            assert copies(gpu) == [
                f"HtoDAsync_v2 {rows * 32}",  # x
                f"DtoHAsync_v2 {rows * 32}",  # the sums, which the CPU looks through
                f"HtoDAsync_v2 {rows * 12}",  # the best of them
                f"HtoDAsync_v2 {rows * 12}",  # and where they are
                f"DtoHAsync_v2 {rows * 12}",  # y
                f"DtoHAsync_v2 {rows * 12}",  # where
            ]
            np.testing.assert_array_equal(results["where"], where)
            np.testing.assert_allclose(results["y"], 2 * np.take_along_axis(sums, where, 1))


def test_copies_of_mixed_models_may_fail(tmp_path: Path, gpu: Emulator) -> None:
    library = rten_aot.compile(
        best_of_sums(tmp_path / "mixed.rten"), tmp_path / "mixed.so", target="cuda -arch=sm_80"
    )
    with rten_aot.load(library) as model:
        want = model.run({"x": X})
        for function in ("cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"):
            for number in (1, 2, 3):
                gpu.fail(function, 999, number)
                with pytest.raises(rten_aot.ModelRunError, match=r"in a copy to the (GPU|host)"):
                    model.run({"x": X})
        np.testing.assert_array_equal(model.run({"x": X})["y"], want["y"])


OF_THE_CPU = [
    Case("best", "TopK", [X, np.array([3], np.int64)], [], outputs=2, constant=[1]),
    Case("places", "NonZero", [X], []),
    Case("boxes", "NonMaxSuppression",
         [BOXES, np.ones((1, 1, 3), np.float32), np.array([2], np.int64)], [], constant=[2]),
]  # fmt: skip
OF_THE_GPU = [
    Case("add", "Add", [X, X], []),
    Case("sum", "ReduceSum", [X, np.array([1], np.int64)], [], constant=[1]),
    Case("product", "MatMul", [X, X.T.copy()], []),
    Case("rows", "Gather", [X, np.array([1, 0], np.int32)], []),
    Case("best", "ArgMax", [X], [], attrs={"axis": 1}),
    Case("pool", "MaxPool", [np.ones((1, 2, 6, 6), np.float32)], [],
         attrs={"kernel_shape": [2, 2]}),
]  # fmt: skip


def explained(cases: Sequence[Case], folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What ``--explain`` says of the CPU."""
    write_cases(cases, "static", folder / "model.rten")
    words = ["compile", str(folder / "model.rten"), "--target", "cuda", "-arch=sm_80"]
    assert main([*words, "--emit", "cuda", "-o", str(folder / "model.cu"), "--explain"]) == 0
    printed = "".join(capsys.readouterr())
    return [line.strip() for line in printed.splitlines() if "runs on the CPU" in line]


@pytest.mark.parametrize("case", OF_THE_CPU, ids=lambda case: case.op)
def test_operators_of_the_cpu_are_named(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = explained([case], tmp_path, capsys)
    assert lines
    assert all(line.endswith(": runs on the CPU: its loops depend on each other") for line in lines)


def test_other_operators_run_on_the_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explained(OF_THE_GPU, tmp_path, capsys) == []
