"""Identifiers and comments of OpenCL C, made of the names that a program gives."""

from __future__ import annotations

import re
from functools import lru_cache
from zlib import crc32

#: The C type of loop variables and work-item ids, which each source defines.
INDEX = "index_t"
_LANE_NAMES = "0123456789abcdef"


@lru_cache(maxsize=4096)
def c_name(name: str) -> str:
    """The letters, digits and underscores of a name; different names stay different.

    The result is put behind a prefix that says what is named (``i_`` a loop variable, ``g_`` a
    global buffer, …), so that it meets no keyword or built-in function of OpenCL C.
    """
    text = re.sub(r"[^A-Za-z0-9_]", "_", name)
    if text != name or not text:
        return f"n_{text}_{crc32(name.encode()):08x}_"
    # What ends in an underscore gets one more, so that no name meets a changed one.
    return text + "_" if text.startswith("n_") or text.endswith("_") else text


def kernel_name(name: str) -> str:
    """The identifier of a kernel."""
    return f"k_{c_name(name)}"


def global_name(name: str) -> str:
    """The identifier of a global buffer."""
    return f"g_{c_name(name)}"


def comment_text(text: str) -> str:
    """Text that stays inside a C comment, whatever names it is made of."""
    if not text.isprintable() or "\\" in text:
        text = "".join(c if c.isprintable() and c != "\\" else "?" for c in text)
    return text.replace("*/", "* /").replace("/*", "/ *")


def lane_name(lane: int) -> str:
    """The component selector of a lane: s0 to sf."""
    return f"s{_LANE_NAMES[lane]}"


def constant_name(name: str) -> str:
    """The identifier of a size or tuning parameter."""
    return f"c_{c_name(name)}"
