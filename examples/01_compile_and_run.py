"""Compile a model and run it.

python examples/01_compile_and_run.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import rten_aot

MODEL = Path(__file__).with_name("digits") / "digits.rten"

with tempfile.TemporaryDirectory() as folder:
    library = rten_aot.compile(MODEL, Path(folder) / "digits.so", target="llvm -mcpu=native")

    # From here on, neither the model nor the compiler is needed: copy the library anywhere.
    model = rten_aot.load(library)
    for info in (*model.inputs, *model.outputs):
        print(info.name, info.dtype, info.shape)

    picture = np.zeros((1, 1, 8, 8), np.float32)
    picture[0, 0, 1:7, 3:5] = 1  # an upright stroke
    answer = model.run({"input": picture})
    print("probabilities:", np.round(answer["probabilities"][0], 3))
    print("This is a", answer["probabilities"][0].argmax())
