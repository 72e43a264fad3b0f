"""A process that keeps a connection for each of many boards needs as many open files."""

from __future__ import annotations

import resource

#: Enough for tens of thousands of connections. Not without bound: some programs that a process
#: starts close every number up to its limit.
_MOST = 65_536


def allow_open_files() -> int:
    """Raise the limit of this process as far as its user may; what it is now.

    Debian allows 1,024 at first, so that the thousandth board would be turned away.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most
