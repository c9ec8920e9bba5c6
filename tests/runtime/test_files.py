"""Files with arrays: what is in them comes out, and damage is told."""

from __future__ import annotations

import os
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

from rten_aot.runtime import InputError
from rten_aot.runtime.files import read_arrays

X = np.arange(600, dtype=np.float32).reshape(20, 30)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


@pytest.mark.parametrize("array", [X, X.T, X.astype(">f4"), np.float32(3), X[:0]])
def test_single_arrays(path: Path, array: np.ndarray) -> None:
    with open(path, "wb") as file:
        np.save(file, array)
    got = read_arrays(path)
    assert isinstance(got, np.ndarray)
    np.testing.assert_array_equal(got, array)


def test_archives(path: Path) -> None:
    for save in (np.savez, np.savez_compressed):
        with open(path, "wb") as file:
            save(file, x=X, y=X[0])
        got = read_arrays(path)
        assert isinstance(got, dict)
        assert list(got) == ["x", "y"]
        np.testing.assert_array_equal(got["x"], X)
    zipfile.ZipFile(path, "w").close()
    assert read_arrays(path) == {}


def test_pipes(path: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=[(tmp_path / "x.npy").read_bytes()])
    writer.start()
    got = read_arrays(path)
    writer.join()
    assert isinstance(got, np.ndarray)
    np.testing.assert_array_equal(got, X)


def test_other_files(path: Path) -> None:
    for data in (b"", b"text", b"\x93NUM"):
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"file: neither a \.npy nor a \.npz file$"):
            read_arrays(path)
    with pytest.raises(FileNotFoundError):
        read_arrays(path.with_name("none"))


def test_arrays_that_are_not_plain_or_too_large(path: Path) -> None:
    with open(path, "wb") as file:
        np.save(file, np.array([None]))
    with pytest.raises(InputError, match="not a file with plain arrays"):
        read_arrays(path)
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"shape": (1 << 50,), "fortran_order": False, "descr": "<f4"}
        )
    with pytest.raises(InputError, match="not a file with plain arrays"):
        read_arrays(path)


@pytest.mark.parametrize("kind", ["npy", "npz", "compressed"])
def test_damaged_files(path: Path, kind: str) -> None:
    """Whatever the libraries raise that read them, the file is told."""
    with open(path, "wb") as file:
        if kind == "npy":
            np.save(file, X)
        else:
            (np.savez if kind == "npz" else np.savez_compressed)(file, x=X, y=X)
    whole = path.read_bytes()
    refused = 0
    for number in range(600):
        rng = np.random.default_rng(number)
        damaged = bytearray(whole)
        damaged[rng.integers(6, 128 if kind == "npy" else len(whole))] = rng.integers(256)
        path.write_bytes(damaged[: None if number % 3 else rng.integers(len(whole))])
        try:
            read_arrays(path)
        except InputError:
            refused += 1
    assert refused > 200
