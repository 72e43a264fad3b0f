"""What hears bells (celery 5.5, kombu 5.5): messages that are none are dropped before Celery reads
them, which ends its whole worker where a field is of another kind than it expects."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, cast

from celery.worker.consumer import Consumer
from kombu import compression

#: A bell has the id of a job in it and nothing else.
_MOST_BYTES = 4096
_NOTHING = (None, "", 0, [], {}, [None, None])
#: Header fields that make Celery do something at some time, or something else afterwards.
_ORDERS = (
    "eta", "expires", "timelimit", "retries", "group", "group_index", "shadow", "compression",
    "replaced_task_nesting", "stamps", "stamped_headers",
)  # fmt: skip
#: The same beside a call's arguments.
_FOLLOWERS = ("callbacks", "errbacks", "chain", "chord")

logger = logging.getLogger(__name__)


class BellConsumer(Consumer):
    """Celery's consumer, of bells alone."""

    def create_task_handler(self, *arguments: Any, **named: Any) -> Any:
        """Hand bells on, drop the rest."""
        _unpack_nothing()
        heard: Callable[[Any], Any] = super().create_task_handler(*arguments, **named)
        ours = {name for name in cast(Any, self.app).tasks if not name.startswith("celery.")}

        def hear(message: Any) -> Any:
            if is_bell(message, ours):
                return heard(message)
            logger.warning("dropped a message that is no bell")
            # Acknowledged, so that it does not come back.
            return message.ack_log_error(logger, self.connection_errors)

        return hear


def is_bell(message: Any, tasks: set[str]) -> bool:
    """Whether a message calls one of these tasks with the id of a job, now and without more."""
    headers, body = message.headers, message.body
    if (
        message.errors
        or message.content_type != "application/json"
        or message.content_encoding != "utf-8"
        or not isinstance(headers, dict)
        or not isinstance(headers.get("task"), str)
        or headers["task"] not in tasks
        or not isinstance(headers.get("id"), str)
        or any(headers.get(name) not in _NOTHING for name in _ORDERS)
        or len(body) > _MOST_BYTES
    ):
        return False
    try:
        text = body if isinstance(body, str) else bytes(body).decode()
        arguments, named, more = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return False
    return (
        arguments == []
        and isinstance(named, dict)
        and list(named) == ["job_id"]
        and isinstance(named["job_id"], str)
        and isinstance(more, dict)
        and all(more.get(name) in _NOTHING for name in _FOLLOWERS)
    )


def _unpack_nothing() -> None:
    """No bell is compressed; a small message can become a large one, before anybody looks at it."""

    def refuse(body: bytes) -> bytes:
        raise ValueError("no bell is compressed")

    for kind in compression.encoders():
        compression.register(None, refuse, kind)
