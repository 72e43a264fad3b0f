"""Running candidates: devices, the supervised measuring child and the simulator check.

Only this package opens devices and starts processes; it imports nothing from the project
but :mod:`mapper`. ``pyopencl`` is imported inside functions, so that importing this package
is fast and works where there is no OpenCL.
"""
