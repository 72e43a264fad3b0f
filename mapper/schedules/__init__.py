"""Schedules: programs rewritten by small steps, whatever they compute."""
