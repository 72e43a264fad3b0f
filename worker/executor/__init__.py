"""The agent's measuring process: ``python -m worker.executor``, lines of JSON in and out.

It has NumPy, loads workloads from the agent's artifact files and hosts the supervised measuring
child; it never talks to a network. Its events are those of :mod:`worker.executor.serving`.
"""
