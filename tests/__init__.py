"""Tests, and what they share. Whatever is set here is set before NumPy is loaded."""

import os

# As many threads of OpenBLAS and OpenMP as there are cores, in each of the processes that tests
# are and start, wait for one another in loops: a fit of a small model took six times its time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
