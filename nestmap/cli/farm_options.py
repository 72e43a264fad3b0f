"""Options of ``serve`` and ``solver-worker`` that may stand in the environment or in a file."""

from __future__ import annotations

import os
from pathlib import Path

from mapper.errors import InputError, Problem
from mapper.plain_files import NotPlainFile, read_plain_file

_MOST_BYTES = 64 * 1024


def option_or_environment(given: str | None, variable: str, default: str = "") -> str:
    """An option, else ``variable``, else the text of the file that ``variable``_FILE names.

    InputError for a file that cannot be read.
    """
    if given:
        return given
    if text := os.environ.get(variable, "").strip():
        return text
    name = os.environ.get(f"{variable}_FILE", "")
    if not name:
        return default
    try:
        return read_plain_file(Path(name), _MOST_BYTES).decode("utf-8").strip()
    except NotPlainFile as error:
        raise InputError(Problem(f"{variable}_FILE", str(error), name, "a regular file")) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(f"{variable}_FILE", "cannot be read", name)) from error
