"""Models that are still open when the interpreter ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import rten_aot

KEEPER = """
import sys
import rten_aot.runtime.model as module
held = module.load(sys.argv[1], num_threads=2)
module.sys = None  # as at the end of the interpreter, which empties modules in no certain order
del held
kept = module.load(sys.argv[1], num_threads=2)
cycle = [kept]
cycle.append(cycle)
"""


def test_no_noise_at_exit(fake: Path, tmp_path: Path) -> None:
    (tmp_path / "keeper.py").write_text(KEEPER)
    root = Path(rten_aot.__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-c", "import keeper", fake],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{root}:{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
