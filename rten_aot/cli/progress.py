"""What ``rten-aot compile`` shows while it works."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TextIO

_CLEAR = "\r\x1b[2K"


class ProgressLine:
    """On a terminal one line that follows the stages; when verbose a line each; else nothing."""

    def __init__(self, stream: TextIO, *, verbose: bool) -> None:
        self._stream = stream
        self._verbose = verbose
        self._live = not verbose and stream.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = False

    def __call__(self, stage: str, seconds: float) -> None:
        """Show that ``stage`` begins after ``seconds``."""
        text = f"{seconds:6.1f} s  {stage}"
        if self._verbose:
            print(text, file=self._stream, flush=True)
        elif self._live:
            width = shutil.get_terminal_size().columns - 1
            print(_CLEAR + text[:width], end="", file=self._stream, flush=True)
            self._shown = True

    def note(self, line: str) -> None:
        """Print a line of --explain to standard output, without tearing the progress line."""
        self.clear()
        print(line, file=sys.stdout)

    def done(self, text: str) -> None:
        """Replace the progress by its outcome."""
        self.clear()
        if self._live or self._verbose:
            print(text, file=self._stream, flush=True)

    def clear(self) -> None:
        """Wipe the progress line."""
        if self._shown:
            print(_CLEAR, end="", file=self._stream, flush=True)
            self._shown = False
