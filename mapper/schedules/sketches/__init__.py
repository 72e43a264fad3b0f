"""Sketches: schedules worth having for any program, found by an analysis of its accesses."""
