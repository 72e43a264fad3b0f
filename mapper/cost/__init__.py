"""Models of time: of plans of kernels, of slices in caches, and linear ones for the solver."""
