"""Sizes that stay free until the model runs, sizes that are fixed, and what the latter gain.

python examples/02_dynamic_shapes.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import rten_aot

MODEL = Path(__file__).with_name("digits") / "digits.rten"

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)

    # The model's file calls the first dimension of its input "batch": one library takes any.
    free = rten_aot.load(
        rten_aot.compile(MODEL, folder / "any_batch.so", target="llvm -mcpu=native")
    )
    print("free: ", free.inputs[0].shape)
    for batch in (1, 5, 64):
        pictures = np.zeros((batch, 1, 8, 8), np.float32)
        (probabilities,) = free(pictures)
        print(f"  {batch} pictures -> {probabilities.shape}")

    # A size that is known is worth telling: memory is planned ahead, and loops have fixed lengths.
    # `shapes={"input": [4, 1, 8, 8]}` says the same by the name of the input.
    fixed = rten_aot.load(
        rten_aot.compile(MODEL, folder / "four.so", target="llvm -mcpu=native", dims={"batch": 4})
    )
    print("fixed:", fixed.inputs[0].shape)
    print(f"  it needs {fixed.metadata['sizes']['workspace']} bytes beside the weights")
    try:
        fixed(np.zeros((5, 1, 8, 8), np.float32))
    except rten_aot.InputError as error:
        print(f"  five pictures: {error}")
