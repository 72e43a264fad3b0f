"""``python -m worker.executor``: started by the agent, never by hand."""

import sys

from worker.executor.serving import main

if __name__ == "__main__":
    sys.exit(main())
