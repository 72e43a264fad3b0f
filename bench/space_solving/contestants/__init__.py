"""Who is measured: nestmap, the builders of other projects, and brute force.

Each module is loaded only in the child process that runs it, so that none has to be installed
for the others.
"""
