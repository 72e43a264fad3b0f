"""Measuring candidates in a supervised child process that a bad kernel cannot take along."""

from worker.measuring.measuring_child import MeasuringChild, measure
from worker.measuring.settings import Protocol, Tolerance

__all__ = ["MeasuringChild", "Protocol", "Tolerance", "measure"]
