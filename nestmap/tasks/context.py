"""What a request is worked on with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mapper.solver.limits import Watch
from nestmap.tasks.known_spaces import KnownSpaces
from nestmap.tasks.limits import TaskLimits
from nestmap.tasks.replies import Replies
from nestmap.tasks.request_fields import Envelope
from nestmap.tasks.run_search import Searches


@dataclass(frozen=True, slots=True)
class Context:
    """What the child keeps between requests, and the limits of this one."""

    spaces: KnownSpaces
    searches: Searches
    watch: Watch
    limits: TaskLimits


Kind = Callable[[Envelope, Context, Replies], None]
