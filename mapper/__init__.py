"""The pure core of nestmap: programs, constraints, solver and kernel generator.

Nothing in this package reads files given by a user, opens a device, a database or a
socket, looks at the clock or keeps global state.
"""
