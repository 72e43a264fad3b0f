"""Chains of primitives of schedules on random computations, held against the interpreter."""
