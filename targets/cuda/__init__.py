"""NVIDIA GPUs: what they are, and how kernels are written for them as CUDA text."""
