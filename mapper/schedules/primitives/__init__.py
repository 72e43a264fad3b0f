"""Primitives: each takes a program and a name in it, and gives a program of the same meaning."""
