"""Passes from Relax and TIR to Relax and TIR; ``pipeline`` lists them in order."""

if __name__ == "passes":
    raise ImportError("import rten_aot.passes")
