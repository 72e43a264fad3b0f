"""What the owner of a board tells the agent, from options and environment."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from worker.agent.failures import AgentExit, AgentFailure

_LARGEST_SECRET_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that the owner may choose; times are seconds, sizes bytes."""

    url: str
    state: Path
    token: str = field(default="", repr=False)
    enrolment_code: str = field(default="", repr=False)
    device_id: str = ""
    name: str = ""
    device: str = "host"
    ca_file: str | None = None
    once: bool = False
    max_jobs: int | None = None
    wait_s: int = 50
    stop_grace_s: float = 90.0
    cache_bytes: int = 512 * 1024 * 1024
    reboot_command: str = ""
    reprobe_s: float = 300.0
    broker: str = field(default="", repr=False)
    executor_options: tuple[str, ...] = ()


def secret(option: str | None, file: Path | None, variable: str) -> str:
    """A secret from an option, a file, ``variable`` or the file that ``variable``_FILE names.

    Empty where there is none; raises AgentFailure for a file that cannot be read.
    """
    if option is not None:
        return option.strip()
    if file is None:
        if text := os.environ.get(variable, "").strip():
            return text
        name = os.environ.get(f"{variable}_FILE", "")
        if not name:
            return ""
        file = Path(name)
    try:
        return _plain_file(file).decode("ascii").strip()
    except (OSError, ValueError) as error:
        raise AgentFailure(f"{file}: cannot be read: {error}", AgentExit.BAD_OPTIONS) from None


def _plain_file(path: Path) -> bytes:
    """As `mapper.plain_files` reads; the agent has the standard library alone."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("is not a regular file")
        data = file.read(_LARGEST_SECRET_BYTES + 1)
    if len(data) > _LARGEST_SECRET_BYTES:
        raise OSError(f"has more than {_LARGEST_SECRET_BYTES} bytes")
    return data


def default_state() -> Path:
    """Where systemd, or the XDG directories of the user, want state to be."""
    # A unit with several state folders lists them with colons.
    given = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if given:
        return Path(given)
    base = os.environ.get("XDG_STATE_HOME", "") or str(Path.home() / ".local/state")
    return Path(base) / "nestmap-worker"
