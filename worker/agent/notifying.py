"""systemd's notification socket (sd_notify(3)): ready, status, and a pulse for the watchdog."""

from __future__ import annotations

import contextlib
import os
import socket
import time


class ServiceManager:
    """Tells systemd how the agent is; does nothing where no systemd listens."""

    def __init__(self) -> None:
        self._address = os.environ.pop("NOTIFY_SOCKET", "")
        usec = os.environ.pop("WATCHDOG_USEC", "")
        # Half of what is allowed, as sd_watchdog_enabled(3) recommends.
        self._pulse_s = int(usec) / 2e6 if usec.isdecimal() else 0.0
        self._next_pulse = 0.0

    def _tell(self, text: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        # Never a reason to stop: systemd notices a silent agent by itself.
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel,
        ):
            channel.settimeout(1.0)
            channel.sendto(text.encode(), address)

    def ready(self) -> None:
        """The agent has its device and works."""
        self._tell("READY=1")

    def stopping(self) -> None:
        """The agent finishes its job and ends."""
        self._tell("STOPPING=1")

    def status(self, text: str) -> None:
        """One line for ``systemctl status``."""
        self._tell("STATUS=" + text.replace("\n", " ")[:200])

    def pulse(self) -> None:
        """The main loop goes round; without this systemd kills and restarts the agent."""
        now = time.monotonic()
        if self._pulse_s and now >= self._next_pulse:
            self._next_pulse = now + self._pulse_s
            self._tell("WATCHDOG=1")
