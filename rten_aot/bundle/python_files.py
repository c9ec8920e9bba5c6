"""The Python example of a bundle."""

from __future__ import annotations

import json

from rten_aot.bundle.kit import Kit, Tensor

LOADER = "rten_aot_runtime.py"
"""The file that ``loader_source`` is the text of."""


def example(kit: Kit) -> str:
    """A program that runs the model once on zeros and prints what comes out."""
    return f'''\
"""Runs {kit.library} once, on zeros, and prints what comes out. Made by {kit.maker}."""

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # python -I does not look here

import {LOADER.removesuffix(".py")} as rten_aot
{_sizes(kit)}
model = rten_aot.load(HERE / "{kit.library}")
inputs = {{{_inputs(kit)}}}
for name, array in model.run(inputs).items():
    first = " ".join(f"{{value:.6g}}" for value in array.ravel()[:8])
    print(name, list(array.shape), first, "..." if array.size > 8 else "")
'''


def _sizes(kit: Kit) -> str:
    lines = [f"{name} = 1  # {what}\n" for name, what in kit.free.items()]
    return "".join(["\n# Sizes that the model leaves open.\n", *lines]) if lines else ""


def _inputs(kit: Kit) -> str:
    """Entries of a dict, arrays by the names of inputs."""
    rows = [f"    {_zeros(tensor)},\n" for tensor in kit.inputs]
    return "".join(["\n    # Your data goes here.\n", *rows]) if rows else ""


def _zeros(tensor: Tensor) -> str:
    sizes = ", ".join(map(str, tensor.sizes))
    shape = f"({sizes},)" if len(tensor.sizes) == 1 else f"({sizes})"
    name = json.dumps(tensor.name, ensure_ascii=False)
    return f"{name}: np.zeros({shape}, np.{tensor.dtype})"
