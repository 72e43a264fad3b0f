"""Fronts of two objectives that are both to be small, and what a new point would add."""
