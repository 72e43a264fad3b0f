"""The measuring child under the farm's limits: ``python -m worker.executor.confined_child``.

Takes the place of :mod:`worker.measuring.child_main`, whose arguments it has.
"""

from __future__ import annotations

import os

from worker.executor.confinement import VARIABLE, Confinement, confine
from worker.measuring.child_main import main

if __name__ == "__main__":
    # Before the first thread: a process with several cannot leave its user namespace.
    confine(Confinement.from_text(os.environ[VARIABLE]))
    # Skip interpreter and driver clean-up, as the child does by itself.
    os._exit(main())
