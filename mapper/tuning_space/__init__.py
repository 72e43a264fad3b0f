"""Tuning spaces without a program: named parameters, and constraints in a small language."""
