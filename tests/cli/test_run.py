"""``rten-aot run``: inputs from files and out of thin air, outputs to the screen and to a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rten_aot.cli.arrays import summary, write_npz
from rten_aot.runtime import TensorInfo
from tests.cli.conftest import Command, FakeModel


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_random_inputs(command: Command, model: FakeModel) -> None:
    done = command("run", "m.so")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "inputs: seeded random values, free dimensions set to 1",
        "  x      float32  [1, 1, 1]",
        "  a=b/c  int32    []",
        "outputs:",
        "  y/z   float32  [1, 5]  min 1  mean 3.2  max 6  first 1 2 3 4 …",
        "  file  int32    []      value 7",
    ]
    first = model.given
    command("run", "m.so")
    assert first is not None
    assert model.given is not None
    assert all(np.array_equal(first[name], model.given[name]) for name in first)
    assert model.num_threads is None


def test_sizes_of_random_inputs(command: Command, model: FakeModel) -> None:
    done = command("run", "m.so", "--shape", "x=1,7,9")
    assert "free" not in done.out
    assert model.given is not None
    assert model.given["x"].shape == (1, 7, 9)
    model.inputs = [TensorInfo("x", "float32", ("n", 2)), TensorInfo("y", "int32", ("n", None))]
    done = command("run", "m.so", "--dim", "n=3")
    assert "free dimensions set to 1" in done.out
    assert (model.given["x"].shape, model.given["y"].shape) == ((3, 2), (3, 1))
    assert 'no free dimension "m"' in command("run", "m.so", "--dim", "m=3").err
    assert 'no input "z"' in command("run", "m.so", "--shape", "z=3").err
    assert "has shape [n, 2], got [3, 4]" in command("run", "m.so", "--shape", "x=3,4").err
    done = command("run", "m.so", "--dim", "n=3", "--input", "x=x.npy")
    assert done.code == 2
    assert "--shape and --dim are for random values" in done.err


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "int8"])
def test_random_inputs_have_the_type(command: Command, model: FakeModel, dtype: str) -> None:
    model.inputs = [TensorInfo("x", dtype, (3, 2))]
    assert "free" not in command("run", "m.so").out
    assert model.given is not None
    assert (str(model.given["x"].dtype), model.given["x"].shape) == (dtype, (3, 2))


def test_inputs_from_files(command: Command, model: FakeModel) -> None:
    x, n = np.ones((1, 2, 3), np.float32), np.int32(5)
    np.save("x.npy", x)
    np.save("k=5.npy", n)
    done = command("run", "m.so", "--input", "x=x.npy", "--input", "a=b/c=k=5.npy", "--threads=3")
    assert (done.code, done.err) == (0, "")
    assert "random" not in done.out
    assert model.given is not None
    assert model.given["x"].shape == (1, 2, 3)
    assert model.given["a=b/c"].tolist() == 5
    assert model.num_threads == 3


def test_inputs_from_an_archive(command: Command, model: FakeModel) -> None:
    write_npz(Path("in.npz"), {"a=b/c": np.array(1, np.int32)})
    np.save("x.npy", np.ones((1, 2, 3), np.float32))
    assert command("run", "m.so", "--inputs", "in.npz", "--input", "x=x.npy").code == 0
    assert model.given is not None
    assert set(model.given) == {"x", "a=b/c"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--input y=x.npy", 'the model has no input "y"; inputs: "x", "a=b/c"'),
        ("--input a=b/d=x.npy", 'the model has no input "a=b/d"; did you mean "a=b/c"?'),
        ("--input x.npy", '"x.npy" does not have the form --input NAME=FILE.npy'),
        ("--input x=x.npy --input x=x.npy", 'input "x" is given twice'),
        ("--input x=no.npy", "no.npy: No such file or directory"),
        ("--input x=text", "text: neither a .npy nor a .npz file"),
        ("--input x=in.npz", "in.npz: holds several arrays by name; give it by --inputs"),
        (
            "--inputs x.npy",
            "x.npy: not an .npz file; give single arrays by --input NAME=FILE",
        ),
        ("--inputs in.npz", 'the model has no input "q"'),
        ("--input x=x.npy --output no/y.npz", "no: the folder does not exist"),
    ],
)
def test_wrong_inputs(command: Command, model: FakeModel, words: str, message: str) -> None:
    np.save("x.npy", np.ones(3, np.float32))
    np.savez("in.npz", q=np.ones(3))
    Path("text").write_text("no array at all", encoding="utf-8")
    done = command("run", "m.so", *words.split())
    assert done.code == 1
    assert done.err.startswith(f"rten-aot: error: {message}")


@pytest.mark.parametrize("count", ["0", "-1", "two"])
def test_wrong_threads(command: Command, model: FakeModel, count: str) -> None:
    done = command("run", "m.so", "--threads", count)
    assert done.code == 2
    assert done.err.endswith(f'argument --threads: "{count}" is not a positive number\n')


def test_outputs_to_a_file(command: Command, model: FakeModel) -> None:
    assert command("run", "m.so", "--output", "y.npz").code == 0
    with np.load("y.npz") as archive:
        assert archive.files == ["y/z", "file"]
        for name, array in model.answers.items():
            assert archive[name].dtype == array.dtype
            np.testing.assert_array_equal(archive[name], array)
    assert [path.name for path in Path.cwd().iterdir()] == ["y.npz"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "y.npz"
    write_npz(path, {"a": np.ones(2)})
    before = path.read_bytes()
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        write_npz(path, {"a": np.array([None])})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.zeros((0, 3), np.float32), "empty"),
        (np.array([1, np.nan], np.float32), "min nan  mean nan  max nan  first 1 nan"),
        (np.array([np.inf, -np.inf], np.float32), "min -inf  mean nan  max inf  first inf -inf"),
        (np.array([[2**31 - 1, 1]], np.int32), "min 1  mean 1.07374e+09  max 2147483647  first "),
        (np.float32(0.5), "value 0.5"),
    ],
)
def test_summary(array: np.ndarray, text: str) -> None:
    assert summary(np.asarray(array)).startswith(text)
