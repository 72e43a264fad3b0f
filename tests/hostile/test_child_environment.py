"""A measuring child is told what its drivers look for, and nothing else of its owner's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

KEPT = {
    "OCL_ICD_VENDORS": "/etc/OpenCL/vendors", "POCL_MAX_PTHREAD_COUNT": "2", "LC_ALL": "C",
    "CUDA_VISIBLE_DEVICES": "0", "NVIDIA_VISIBLE_DEVICES": "all", "RUSTICL_ENABLE": "panfrost",
    "MALI_DEBUG": "1", "LIBCLC_PATH": "/usr/lib/clc", "LD_LIBRARY_PATH": "/opt/vendor/lib",
    "CL_CONFIG_CPU_TARGET_ARCH": "x", "NESTMAP_POCL_TARGET": "native", "HOME": "/root",
}  # fmt: skip
GONE = {
    "DATABASE_URL": "postgresql://somebody:hunter2@db/farm", "PGPASSFILE": "/root/.pgpass",
    "AWS_ACCESS_KEY_ID": "x", "SSH_AUTH_SOCK": "/tmp/agent", "GITHUB_PAT": "ghp_x",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/bus", "NESTMAP_STORE": "postgres://u:p@db/x",
    "CUDA_CACHE_TOKEN": "x", "NESTMAP_TOKEN": "nm_x", "STATE_DIRECTORY": "/var/lib/nestmap",
    "MY_OWN": "words",
}  # fmt: skip


def test_environment_of_children_is_what_drivers_look_for(tmp_path: Path) -> None:
    script = tmp_path / "reload"
    script.write_text("#!/bin/sh\necho $MY_OWN > " + str(tmp_path / "heard"))
    script.chmod(0o755)
    code = (
        "import json, os\n"
        "from worker.executor import opening\n"
        "from worker.measuring.sandbox import Sandbox\n"
        "opening.probed_target.find_out = lambda target: None\n"
        f"device = opening.open_device('pocl', Sandbox(), {str(script)!r})\n"
        "device._recovery()\n"
        "print(json.dumps(dict(os.environ)))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **KEPT, **GONE}, capture_output=True,
        text=True, check=True, cwd=Path(__file__).resolve().parents[2],
    )  # fmt: skip
    left = json.loads(ended.stdout)
    assert {name: left.get(name) for name in KEPT} == KEPT
    assert not set(GONE) & set(left)
    assert "NESTMAP_SANDBOX" in left
    # The owner's command has the owner's environment.
    assert (tmp_path / "heard").read_text() == "words\n"
