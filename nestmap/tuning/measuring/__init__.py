"""Candidates built side by side in processes, judged, and timed in turns on one device."""
