"""The default number of threads, on a made-up /proc and /sys."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rten_aot.codegen.link import NATIVE, _find_zig

MAIN = """
#include <stdio.h>
#include "runtime.h"
int main(void) { printf("%d %d", rten_usable_cores(), rten_usable_processors()); return 0; }
"""
CPUS = sorted(os.sched_getaffinity(0))[:2]
V1 = "4:memory:/a\n3:cpu,cpuacct:/box/job\n"
V2 = "0::/box/job\n"

pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="needs two processors")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("root")
    (folder / "main.c").write_text(MAIN)
    subprocess.run(
        [
            *(*_find_zig(), "cc", "-std=gnu11", "-D_GNU_SOURCE", f'-DRTEN_ROOT="{folder}"'),
            *(f"-I{NATIVE}", "main.c", str(NATIVE / "threads.c"), "-o", "count"),
        ],
        cwd=folder,
        env={**os.environ, "ZIG_LOCAL_CACHE_DIR": str(folder / "zig")},
        check=True,
    )
    return folder


def count(root: Path, files: dict[str, str]) -> tuple[int, int]:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, CPUS)
    try:
        done = subprocess.run([root / "count"], capture_output=True, text=True, check=True)
    finally:
        os.sched_setaffinity(0, allowed)
        for path in files:
            (root / path).unlink()
    cores, processors = done.stdout.split()
    return int(cores), int(processors)


def siblings(text: str) -> dict[str, str]:
    return {f"sys/devices/system/cpu/cpu{i}/topology/thread_siblings_list": text for i in CPUS}


def test_nothing_to_read(root: Path) -> None:
    assert count(root, {}) == (2, 2)


@pytest.mark.parametrize("form", ["{}-{}\n", "{},{}\n", "{},{},900-901\n"])
def test_hyper_threads(root: Path, form: str) -> None:
    assert count(root, siblings(form.format(*CPUS))) == (1, 2)


def test_separate_cores(root: Path) -> None:
    files = {f"sys/devices/system/cpu/cpu{i}/topology/thread_siblings_list": f"{i}\n" for i in CPUS}
    assert count(root, files) == (2, 2)
    # A sibling that this process may not use does not count.
    assert count(root, siblings("700-702\n")) == (2, 2)


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        (V2, {"cpu.max": "max 100000\n"}, 2),
        (V2, {"box/job/cpu.max": "50000 100000\n"}, 1),
        (V2, {"box/job/cpu.max": "100000 100000\n"}, 1),
        (V2, {"box/job/cpu.max": "150000 100000\n"}, 2),
        (V2, {"box/cpu.max": "100000 100000\n", "box/job/cpu.max": "max 100000\n"}, 1),
        (V2, {"cpu.max": "100000 100000\n"}, 1),
        (V2, {"unified/box/job/cpu.max": "100000 100000\n"}, 1),
        (V2, {"box/job/cpu.max": "nonsense\n"}, 2),
        (V1, {"cpu/box/job/cpu.cfs_quota_us": "-1\n",
              "cpu/box/job/cpu.cfs_period_us": "100000\n"}, 2),
        (V1, {"cpu/box/job/cpu.cfs_quota_us": "90000\n",
              "cpu/box/job/cpu.cfs_period_us": "100000\n"}, 1),
        (V1, {"cpu,cpuacct/cpu.cfs_quota_us": "100000\n",
              "cpu,cpuacct/cpu.cfs_period_us": "100000\n"}, 1),
        ("5:cpuset:/box\n", {"cpu/box/cpu.cfs_quota_us": "1\n",
                             "cpu/box/cpu.cfs_period_us": "1\n"}, 2),
    ],
)  # fmt: skip
def test_quotas(root: Path, groups: str, limits: dict[str, str], expected: int) -> None:
    files = {f"sys/fs/cgroup/{path}": text for path, text in limits.items()}
    assert count(root, {"proc/self/cgroup": groups, **files}) == (expected, expected)
