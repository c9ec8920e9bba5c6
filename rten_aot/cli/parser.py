"""Argument parsing as all commands share it: errors as exceptions, and help with misspelt words."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

_NUMBER = re.compile(r"-\d+(\.\d*)?|-\.\d+")


class UsageError(Exception):
    """The command line is wrong; ``usage`` is how it should look."""

    def __init__(self, message: str, usage: str) -> None:
        super().__init__(message)
        self.usage = usage.rstrip()


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean "…"?`` for a known word that is close to ``word``, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f'; did you mean "{close[0]}"?' if close else ""


def file_path(text: str) -> Path:
    """A file or folder of the command line: an empty word would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty")
    return Path(text)


class Parser(argparse.ArgumentParser):
    """The arguments of one command.

    Differs from argparse in that errors are raised as ``UsageError``, an unknown option is named
    before anything else is complained of, and options cannot be abbreviated. Only the options in
    ``attached`` take their value without a space (``-O3``).
    """

    def __init__(
        self,
        command: str,
        description: str,
        *,
        epilog: str | None = None,
        attached: frozenset[str] = frozenset(),
    ) -> None:
        self._attached = attached
        super().__init__(
            prog=f"rten-aot {command}",
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Raise ``UsageError`` in place of ending the process."""
        raise UsageError(message, self.format_usage())

    @property
    def option_strings(self) -> list[str]:
        """Every option as it is written, dashes included."""
        return [text for action in self._actions for text in action.option_strings]

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse the words that follow the command.

        Raises:
            UsageError: they are not what the command takes.
        """
        self._check_options(words)
        namespace, extra = self.parse_known_args(list(words))
        if extra:
            self.error(f'unexpected argument "{extra[0]}"')
        return namespace

    def _check_options(self, words: Sequence[str]) -> None:
        """Refuse unknown options by name.

        argparse would report what else is missing first, and would take ``-output`` for ``-o``
        with the value ``utput``.
        """
        options = self.option_strings
        for word in words:
            if word == "--":
                return
            if not word.startswith("-") or word == "-" or _NUMBER.fullmatch(word):
                continue
            name = word.partition("=")[0]
            if name not in options and word[:2] not in self._attached:
                self.error(f'unknown option "{name}"{did_you_mean(name, options)}')
