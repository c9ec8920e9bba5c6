"""Arrays from files, whatever is in these."""

from __future__ import annotations

import io
import os
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rten_aot.runtime.errors import InputError

Arrays: TypeAlias = "npt.NDArray[Any] | dict[str, npt.NDArray[Any]]"

# The first bytes of .npy files; of archives, and of empty ones.
_BEGINNINGS = (b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")


def read_arrays(path: str | os.PathLike[str]) -> Arrays:
    """The array of a ``.npy`` file, or those of a ``.npz`` file by name.

    Raises:
        InputError: it is no such file, is damaged, or holds objects.
        OSError: it cannot be opened.
    """
    with open(path, "rb") as file:
        source = file if file.seekable() else io.BytesIO(file.read())
        if not source.read(6).startswith(_BEGINNINGS):
            raise InputError(f"{path}: neither a .npy nor a .npz file")
        source.seek(0)
        try:
            loaded: Any = np.load(source, allow_pickle=False)
            array: Arrays = loaded if isinstance(loaded, np.ndarray) else dict(loaded)
        except Exception as err:  # of NumPy, zipfile, zlib, tokenize and others, if it is damaged
            raise InputError(f"{path}: not a file with plain arrays ({err})") from err
    return array
