"""Files are written as a whole or not at all, and only files are replaced."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from rten_aot.files import check_writable, is_same_file, new_file


def write(path: Path, text: str = "text") -> None:
    with new_file(path) as place:
        place.write_text(text)


def test_a_file_is_new_or_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / ("long" * 62)
    write(path, "first")
    path.chmod(0o600)
    write(path, "second")
    assert path.read_text() == "second"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == [path.name]


def test_after_a_failure_all_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    with contextlib.suppress(RuntimeError), new_file(path) as place:
        place.write_text("half")
        raise RuntimeError
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["file"]


def test_errors_name_the_file_and_not_the_place_for_it(tmp_path: Path) -> None:
    full = os.strerror(errno.ENOSPC)
    with pytest.raises(OSError, match=f"{full}: '/dev/full'"):
        write(Path("/dev/full"))
    path = tmp_path / "file"
    with pytest.raises(OSError, match=f"{full}: '{path}'"), new_file(path):
        raise OSError(errno.ENOSPC, full)
    with pytest.raises(FileNotFoundError, match=f"'{path}'"), new_file(path) as place:
        (place / "none").read_text()
    with pytest.raises(OSError, match="'other'"), new_file(path):
        raise OSError(errno.ENOSPC, full, "other")
    with pytest.raises(OSError, match="it"), new_file(path):
        raise OSError("it")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("exists", [False, True])
def test_a_link_stays_one(exists: bool, tmp_path: Path) -> None:
    link, path = tmp_path / "link", tmp_path / "elsewhere" / "file"
    path.parent.mkdir()
    if exists:
        path.write_text("before")
    link.symlink_to(path)
    write(link)
    assert link.is_symlink()
    assert path.read_text() == "text"


def test_links_in_a_circle(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.symlink_to(other)
    other.symlink_to(one)
    assert not is_same_file(one, tmp_path / "file")
    write(one)
    assert one.read_text() == "text"


def test_what_is_no_file_takes_the_bytes(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    write(pipe)
    reader.join()
    assert got == ["text"]
    assert pipe.is_fifo()


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match=f"'{tmp_path}'"):
        check_writable(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"the folder does not exist: .*/none'"):
        check_writable(tmp_path / "none" / "file")
    with pytest.raises(OSError, match="name too long"):
        check_writable(tmp_path / ("x" * 300))


def test_one_place_by_two_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert is_same_file(tmp_path / "link", tmp_path / "link" / ".." / "file")
    assert not is_same_file(tmp_path / "link", tmp_path / "other")
