"""Rewrites of a convolution into blocked mid-level programs."""
