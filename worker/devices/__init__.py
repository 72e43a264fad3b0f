"""Devices that candidates are measured on: OpenCL, recorded and null."""
