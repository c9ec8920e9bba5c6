"""The driver layer on the CPU of a Jetson board."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cuda.fake_library import STRAY, build_fake, expected, feed
from tests.cuda.jetson import JETSON
from tests.edge.emulation import RunFailedError

pytestmark = pytest.mark.emulated


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    JETSON.require()
    folder = tmp_path_factory.mktemp("jetson")
    return build_fake(folder, name="libmodel.so", machine="aarch64", archs=["sm_87"])


def test_run(library: Path) -> None:
    inputs = feed(5)
    results = JETSON.run(library, inputs)
    for result, (name, array) in zip(results, expected(inputs).items(), strict=True):
        np.testing.assert_allclose(result, array, rtol=1e-6, err_msg=name)


def test_failures(library: Path) -> None:
    with pytest.raises(RunFailedError, match=r'in node "pick_1" \(Gather\): index 9 is out of'):
        JETSON.run(library, feed(5, index=(9, 0)))
    with pytest.raises(RunFailedError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        JETSON.run(library, feed(5, mode=STRAY))
