"""Files that are written as a whole or not at all; imports nothing else of the package."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = ".rten-aot-"


def check_writable(path: Path) -> None:
    """Fail before the work, not after it, where a file cannot be written.

    Raises:
        OSError: ``path`` is a folder, or lies in none that exists and can be written to.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if _takes_bytes(path):
        return
    folder = _place(path).parent
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, "the folder does not exist", str(path.parent))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path.parent))


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A place to write what becomes ``path`` at the end of the block, unless that fails.

    A link stays a link: what it leads to is replaced, and keeps its mode. Devices and pipes are not
    replaced: the bytes go into them.

    Raises:
        OSError: as for ``check_writable``, or the disk is full.
    """
    check_writable(path)
    into = _takes_bytes(path)
    place = _place(path)
    beside = None if into else place.parent
    try:
        with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=beside) as folder:
            temporary = Path(folder, "new")
            yield temporary
            if into:
                with open(temporary, "rb") as source, open(path, "wb") as target:
                    shutil.copyfileobj(source, target)
                return
            if place.exists():
                shutil.copymode(place, temporary)
            os.replace(temporary, place)
    except OSError as err:
        if _is_about(err):
            raise OSError(err.errno, err.strerror, str(path)) from err
        raise


def _is_about(err: OSError) -> bool:
    """Whether it is the file that is being made, which the user knows by another name, or none."""
    if err.filename is None:
        return err.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return _PREFIX in str(err.filename)


def is_same_file(one: Path, other: Path) -> bool:
    """Whether two paths lead to one place."""
    return _place(one) == _place(other)


def _takes_bytes(path: Path) -> bool:
    """Whether there is something other than a file, such as a device or a pipe."""
    return path.exists() and not path.is_file()


def _place(path: Path) -> Path:
    # Path.resolve raises RuntimeError for links that lead in a circle.
    return Path(os.path.realpath(path))
