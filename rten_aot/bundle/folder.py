"""What a bundle consists of, and how it comes into its folder."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rten_aot.bundle import c_files, python_files, readme
from rten_aot.bundle.kit import make_kit
from rten_aot.bundle.loader import loader_source


def texts(library: str, prefix: str, metadata: Mapping[str, Any]) -> dict[str, str]:
    """The files beside a library and its header ``PREFIX.h``, by their names.

    Args:
        library: file name of the library, as ``library_name`` makes it.
        prefix: what its C functions begin with.
        metadata: what the library says of itself.
    """
    kit = make_kit(library, prefix, metadata)
    return {
        "example.c": c_files.example(kit),
        "CMakeLists.txt": c_files.cmake(kit),
        "example.py": python_files.example(kit),
        python_files.LOADER: loader_source(kit.maker),
        "README.md": readme.readme(kit),
    }


@contextlib.contextmanager
def new_files(folder: Path) -> Iterator[Path]:
    """A place to write files that come into ``folder`` if all goes well, each as a whole.

    ``folder`` is made if there is none. Files of the same name are replaced, others left alone.

    Raises:
        OSError: ``folder`` cannot be written, or is none.
    """
    is_new = not folder.exists()
    if not is_new and not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".rten-aot-") as name:
            yield Path(name)
            for file in sorted(Path(name).iterdir()):
                os.replace(file, folder / file.name)
    except BaseException:
        if is_new:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise
