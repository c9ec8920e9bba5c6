"""Runs in memory that the caller gives: right answers, and nothing written beside it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
import pytest

from rten_aot.runtime import abi
from rten_aot.runtime.library import Library
from tests.models.conftest import Compiler
from tests.models.test_end_to_end import QUICK, assert_matches, marked
from tests.support import models
from tests.support.model_feeds import Array
from tests.support.models import CASES, Case

MARGIN = 8192
FILL = 0xA5
ALIGNMENT = 64


@dataclass
class Guarded:
    """An array with a margin on both sides that must stay as it is."""

    memory: Array
    start: int
    array: Array

    @classmethod
    def around(cls, array: Array) -> Guarded:
        memory = np.full(array.nbytes + 2 * MARGIN + ALIGNMENT, FILL, np.uint8)
        start = MARGIN + (-(memory.ctypes.data + MARGIN)) % ALIGNMENT
        view = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        view[...] = array
        return cls(memory, start, view)

    def intact(self) -> bool:
        end = self.start + self.array.nbytes
        return bool((self.memory[: self.start] == FILL).all() and (self.memory[end:] == FILL).all())

    def tensor(self) -> abi.DLTensor:
        shape = (ctypes.c_int64 * self.array.ndim)(*self.array.shape)
        code, bits = abi.DTYPES[self.array.dtype.name]
        return abi.DLTensor(
            data=self.array.ctypes.data,
            device=abi.DLDevice(abi.CPU, 0),
            ndim=self.array.ndim,
            dtype=abi.DLDataType(code, bits, 1),
            shape=ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)),
        )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", marked(CASES, lambda case: str(case) in QUICK))
def test_the_callers_memory(case: Case, threads: int, compiled: Compiler) -> None:
    library = Library(compiled(case).library)
    workspace = Guarded.around(np.zeros(library.metadata["sizes"]["workspace"], np.uint8))
    options = abi.Options(
        struct_size=ctypes.sizeof(abi.Options),
        num_threads=threads,
        workspace=workspace.array.ctypes.data,
        workspace_bytes=workspace.array.nbytes,
    )
    handle = ctypes.c_void_p()
    assert library.create(ctypes.byref(options), ctypes.byref(handle)) == abi.OK, library.error()
    feed = case.inputs("random")
    given = models.rten_inputs(feed)
    inputs = [Guarded.around(given[t["name"]]) for t in library.metadata["inputs"]]
    outputs = [
        Guarded.around(np.full(t["shape"], 77, t["dtype"])) for t in library.metadata["outputs"]
    ]
    code = library.run(
        handle,
        (abi.DLTensor * len(inputs))(*[each.tensor() for each in inputs]),
        len(inputs),
        (abi.DLTensor * len(outputs))(*[each.tensor() for each in outputs]),
        len(outputs),
    )
    assert code == abi.OK, library.error()
    library.destroy(handle)
    assert_matches([each.array for each in outputs], models.reference(case.model, feed))
    assert all(each.intact() for each in (workspace, *inputs, *outputs))
    for each, t in zip(inputs, library.metadata["inputs"], strict=True):
        np.testing.assert_array_equal(each.array, given[t["name"]])
