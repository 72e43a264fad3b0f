"""Kernels against the libraries, layer by layer, and the search that finds the kernels.

``search`` tries many candidates a second in parallel processes and leaves tuning records;
``gpu`` times the records' kernels and cuDNN in turns, ``cpu`` those for PoCL and oneDNN.
"""
