"""The agent runs on a Python with nothing installed, and stays small."""

from __future__ import annotations

import subprocess
import sys

from tests.unit.agent.running import ROOT

PROBE = """
import sys
sys.path.insert(0, sys.argv[1])
import worker.agent.command
from worker.agent.http_calls import tls_context
tls_context(None)
foreign = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
print(sorted(foreign - {"__main__"}), "numpy" in sys.modules, "mapper" in sys.modules)
status = open("/proc/self/status").read()
print(int(status.partition("VmRSS:")[2].split()[0]))
"""


def test_agent_imports_nothing_but_the_standard_library_and_stays_small() -> None:
    # -I: no PYTHONPATH, no current folder; -S: no site-packages, as on a bare board.
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", PROBE, str(ROOT)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    modules, kilobytes = done.stdout.splitlines()
    assert modules == "['worker'] False False"
    # 24 MB where this was written, of which 8 are Python's own.
    assert int(kilobytes) < 40_000


def test_version_is_the_release() -> None:
    import tomllib

    from worker.agent import AGENT_VERSION

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == AGENT_VERSION
