"""A router for each page."""
