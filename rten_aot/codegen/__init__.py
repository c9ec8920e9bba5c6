"""From scheduled kernels to a shared library: host program, machine code, C runtime, linking."""
