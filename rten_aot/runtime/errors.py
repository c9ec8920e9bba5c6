"""What can go wrong with a compiled model."""

from __future__ import annotations


class ModelLoadError(RuntimeError):
    """A file is not a compiled model, or this machine cannot run it."""


class InputError(ValueError):
    """Inputs do not fit the model; the message names the input, what came and what was expected."""


class ModelRunError(RuntimeError):
    """The model failed while it ran, for instance by an index out of range."""
