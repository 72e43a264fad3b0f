"""What the agent tells whoever watches it: lines for people, or JSON for programs."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import deque
from typing import Any, TextIO

_KEPT_LINES = 50
_LINE_CHARACTERS = 400


def printable(text: str) -> str:
    """The text with what moves a terminal's cursor, or turns its writing around, as escapes."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


class Announcer:
    """Prints events as they come; safe to use from several threads."""

    def __init__(self, as_json: bool, stream: TextIO | None = None) -> None:
        self._as_json = as_json
        self._stream = stream or sys.stdout
        self._lock = threading.Lock()
        self._recent: deque[str] = deque(maxlen=_KEPT_LINES)

    def take_stdout(self) -> None:
        """Keep standard output for events; what libraries print goes to standard error."""
        self._stream = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def say(self, event: str, text: str, **fields: Any) -> None:
        """An event by its kebab-case name, with a sentence, and fields for programs."""
        now = time.time()
        line = printable(" ".join(text.split()))[:_LINE_CHARACTERS]
        clock = time.strftime("%H:%M:%S", time.localtime(now))
        if self._as_json:
            shown = json.dumps({"event": event, "at": round(now, 3), "text": line, **fields})
        else:
            shown = f"{clock} {line}"
        with self._lock:
            self._recent.append(f"{clock} {line}")
            try:
                print(shown, file=self._stream, flush=True)
            except (OSError, ValueError):
                # Nobody reads any more; the job is more important than its progress.
                return

    def start_log(self) -> None:
        """Forget the lines so far: a new job begins."""
        with self._lock:
            self._recent.clear()

    def log(self) -> str:
        """The lines of the current job, the last fifty of them."""
        with self._lock:
            return "\n".join(self._recent)
