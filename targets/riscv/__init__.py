"""RISC-V machines."""
