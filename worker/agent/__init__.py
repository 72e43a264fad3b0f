"""The agent of a board: leases jobs over HTTPS, has them measured, sends what came of them.

Standard library alone, so that it runs wherever Python does and stays small (about 20 MB). What
needs NumPy and OpenCL is a process of its own, :mod:`worker.executor`, which the agent starts,
watches and replaces; they talk in lines of JSON. Nothing here imports from ``mapper``.
"""

from __future__ import annotations

AGENT_VERSION = "0.1.0"
#: The number of the lease protocol that this agent speaks.
PROTOCOL = 1
