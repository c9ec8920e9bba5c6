"""``python -m rten_aot.runtime``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rten_aot.runtime.__main__ import main
from rten_aot.runtime.model import Model
from tests.runtime.fake_library import feed


def test_describe(fake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", str(fake)]) == 0
    text = capsys.readouterr().out
    assert "  x  float32  [batch, 4]\n  index  int32  [?]\n  mode  int32  []\n" in text
    assert text.endswith("target: by-hand any\nworkspace: depends on the shapes\n")
    assert main(["describe", "--json", str(fake)]) == 0
    assert json.loads(capsys.readouterr().out)["abi"] == 1


def test_run_on_random_values(fake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(fake), "--threads", "1"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("y  float32  [1, 4]  ")


def test_shapes_of_random_values(fake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A size that is given to one input is that of the others, too."""
    assert main(["run", str(fake), "--shape", "scale=3"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("y  float32  [3, 4]  ")
    hint = "open sizes are 1; give others by --shape index=1"
    assert shown.err == f"index  [?]: {hint}\n"
    assert main(["time", str(fake), "--runs=1", "--shape=x=3,4", "--shape=index=5"]) == 0
    assert capsys.readouterr().err == ""
    for shape, message in (
        ("y=3", '"y=3" is not NAME=1,2,3; inputs: "x", "index", "mode", "scale"'),
        ("x=3,h", '"x=3,h" is not NAME=1,2,3'),
        ("x=3,-4", '"x=3,-4" is not NAME=1,2,3'),
        ("x=", 'input "x": expected 2 dimensions'),
        ("x=3,5", 'input "x": dimension 1 is 5, expected 4'),
    ):
        assert main(["run", str(fake), "--shape", shape]) == 1
        assert f"error: {message}" in capsys.readouterr().err
    assert main(["run", str(fake), "--shape", "scale=3", "--input", "x.npz"]) == 1
    assert "--shape is for random values" in capsys.readouterr().err


def test_run_on_files(fake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = feed(5)
    x = inputs.pop("x")
    np.save(tmp_path / "x=1.npy", x)
    np.savez(tmp_path / "rest.npz", **inputs)
    files = [f"--input=x={tmp_path / 'x=1.npy'}", f"--input={tmp_path / 'rest.npz'}"]
    assert main(["run", str(fake), *files, "--output", str(tmp_path / "y.npz")]) == 0
    assert "rows  int32  [3]  0 2 4\n" in capsys.readouterr().out
    with np.load(tmp_path / "y.npz") as results:
        assert results["rows"].tolist() == [0, 2, 4]


def test_time(fake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["time", str(fake), "--runs", "3"]) == 0
    assert capsys.readouterr().out.endswith(" ms  (3 runs)\n")
    assert main(["time", str(fake), "--seconds", "0.01", "--threads", "1"]) == 0
    found = re.fullmatch(
        r"best [\d.]+ ms  median [\d.]+ ms  \((\d+) runs\)\n", capsys.readouterr().out
    )
    assert found is not None
    assert int(found[1]) >= 1


def test_errors(fake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def error(*words: str) -> str:
        assert main(words) == 1
        return capsys.readouterr().err

    bad = tmp_path / "bad.npy"
    bad.write_text("text")
    assert error("run", "none.so") == "error: none.so: there is no such file\n"
    assert "neither a .npy nor a .npz file" in error("run", str(fake), "--input", f"x={bad}")
    missing = error("run", str(fake), "--input", "x=none.npy")
    assert missing == "error: none.npy: No such file or directory\n"
    missing = error("run", str(fake), "--output", "/none/y.npz")
    assert missing.endswith("\nerror: /none/y.npz: No such file or directory\n")
    full = error("run", str(fake), "--output", "/dev/full")
    assert full.endswith("\nerror: /dev/full: No space left on device\n")
    bad.write_bytes(b"PK\3\4, but no archive")
    assert "not a file with plain arrays" in error("run", str(fake), "--input", str(bad))
    with open(bad, "wb") as file:
        np.savez(file, x=np.array([None]))
    assert "not a file with plain arrays" in error("run", str(fake), "--input", str(bad))
    np.save(bad, np.zeros(3, np.float32))
    assert "is neither NAME=X.npy nor X.npz" in error("run", str(fake), "--input", str(bad))
    assert '"index", "mode", "scale" missing' in error("run", str(fake), "--input", f"x={bad}")
    for words in (
        ["run"],
        ["run", "x.so", "--threads", "0"],
        ["time", "x.so", "--seconds", "0"],
        ["time", "x.so", "--seconds", "inf"],
        ["dance"],
    ):
        with pytest.raises(SystemExit) as caught:
            main(words)
        assert caught.value.code == 2


def test_an_interrupt_ends_it(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Model, "run", interrupt)
    assert main(["time", str(fake)]) == 130


def test_nobody_reads(fake: Path, root: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "rten_aot.runtime", "describe", fake],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_the_model_is_not_overwritten(
    fake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link = tmp_path / "link.so"
    link.symlink_to(fake)
    before = fake.read_bytes()
    assert main(["run", str(link), "--output", str(fake)]) == 2
    assert capsys.readouterr().err == f"error: the output {fake} is the model itself\n"
    assert fake.read_bytes() == before
