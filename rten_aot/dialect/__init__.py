"""The ``rten.*`` operators of the Relax modules: their types, kernels and layouts."""
