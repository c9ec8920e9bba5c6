"""The emulated GPUs of these tests: one, of capability 8.0, with nothing on it before and after."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cuda import emulator
from tests.cuda.emulator import Emulator, Live


@pytest.fixture
def gpu() -> Iterator[Emulator]:
    installed = emulator.install()
    installed.set_devices(80)
    installed.set_memory(8 << 30)
    installed.set_alignment(256)
    installed.set_backward(backward=False)
    installed.fail("", 0, 0)
    installed.take_log()
    yield installed
    assert installed.live() == Live(*[0] * len(Live._fields))
    assert installed.depth() == 0
