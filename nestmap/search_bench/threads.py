"""How many threads libraries of linear algebra get. Imports nothing: it must come before them."""

#: Environment variables that leave them one: matrices are small, and more threads only wait for
#: one another (with two busy cores a replay took 17 times the processor time).
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
