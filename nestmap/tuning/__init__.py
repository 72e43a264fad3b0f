"""Tuning runs: draw candidates, measure each, keep what is on the time-memory front."""
