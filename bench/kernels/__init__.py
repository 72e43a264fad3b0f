"""Kernels against the libraries, layer by layer.

``gpu`` times the records' kernels and cuDNN in turns, ``cpu`` those for PoCL and oneDNN;
``tuning_stage`` searches first, and leaves tuning records.
"""
