"""``python -m worker.agent``: the agent's command."""

import sys

from worker.agent.command import main

if __name__ == "__main__":
    sys.exit(main())
