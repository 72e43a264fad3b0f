"""How many threads libraries of linear algebra get. Imports nothing: it must come before them."""

#: Environment variables that leave them one: matrices are small, and more threads only wait for
#: one another (200 evaluations took 41 s of processor time with two on two busy cores, 6 with one).
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
