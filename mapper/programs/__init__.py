"""Convolution programs written in the IR: one module a program, none a kernel template."""
