"""Arm machines, 64 and 32 bits."""
