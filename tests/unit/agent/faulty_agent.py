"""An agent whose executor is :mod:`tests.unit.agent.faulty_executor`; its first argument is how."""

from __future__ import annotations

import os
import sys

from worker.agent.command import main

if __name__ == "__main__":
    os.environ["TEST_EXECUTOR"] = sys.argv[1]
    sys.exit(main(sys.argv[2:], "tests.unit.agent.faulty_executor"))
