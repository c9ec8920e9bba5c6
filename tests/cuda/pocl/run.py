"""Runs kernels on PoCL: ``python run.py JOB RESULTS``, in a process of its own, without TVM."""

from __future__ import annotations

import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl


def run(job: dict[str, Any]) -> list[bytes]:
    """The contents of the buffers that are results."""
    platforms = [p for p in cl.get_platforms() if "Portable Computing Language" in p.name]
    context = cl.Context(platforms[0].get_devices())
    queue = cl.CommandQueue(context)
    buffers = []
    for number, size in enumerate(job["sizes"]):
        content = np.frombuffer(job["contents"].get(number, b"\xff" * size), np.uint8)
        assert content.nbytes == size
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        buffers.append(cl.Buffer(context, flags, hostbuf=content.copy()))
    with warnings.catch_warnings():
        # PoCL's compiler says what it vectorised, which is taken for a warning.
        warnings.simplefilter("ignore", cl.CompilerWarning)
        program = cl.Program(context, job["text"]).build(options=["-cl-std=CL1.2"])
    for name, blocks, threads, arguments in job["launches"]:
        kernel = cl.Kernel(program, name)
        kernel(queue, (blocks * threads,), (threads,), *(buffers[i] for i in arguments))
    results = []
    for number in job["results"]:
        result = np.empty(job["sizes"][number], np.uint8)
        cl.enqueue_copy(queue, result, buffers[number])
        results.append(result.tobytes())
    return results


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(pickle.dumps(run(pickle.loads(Path(sys.argv[1]).read_bytes()))))
