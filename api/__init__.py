"""The HTTP API of nestmap: a FastAPI application made by :func:`api.app.create_app`.

Solving and printing kernels happen in child processes (:mod:`api.solver_pool`), storing in
``db``; what is here reads requests, says who may do what, and writes answers.
"""
