"""Models for GPUs whose buffers lie alone: one vector too far is a fault of the kernel."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from rten_aot.codegen import build, link, nvrtc
from tests.cuda import emulator
from tests.support.guard import guarded_native, guarded_program

_VECTOR = 16
"""The alignment that kernels may rely on."""


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Models that are compiled here are guarded, and run here only."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for change in (
            patch.object(build, "build_program", guarded_program),
            patch.object(link, "NATIVE", guarded_native(folder)),
            patch.object(nvrtc, "compile_image", emulator.text_image),
        ):
            stack.enter_context(change)
        emulator.install().set_alignment(_VECTOR)
        stack.callback(emulator.install().set_alignment, 256)
        yield
