"""Measuring candidates in a supervised child process that a bad kernel cannot take along."""

from worker.measuring.measuring_child import MeasuringChild, measure
from worker.measuring.request import MeasureRequest
from worker.measuring.settings import Deadlines, Protocol, Tolerance

__all__ = ["Deadlines", "MeasureRequest", "MeasuringChild", "Protocol", "Tolerance", "measure"]
