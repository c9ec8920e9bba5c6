"""x86-64 machines."""
