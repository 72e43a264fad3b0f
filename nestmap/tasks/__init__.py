"""What a solver child does: it answers requests for constraints, mappings and kernels.

``python -m nestmap.tasks`` reads a JSON request a line and writes JSON replies a line
(docs/solver-workers.md). It is started by ``api.solver_pool``, which knows nothing of it but
these lines, and works as well in a shell's pipe.
"""
