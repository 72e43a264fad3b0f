"""Bytes by their SHA-256: kernel sources, inputs and expected outputs of workloads.

They are kept in the database, in chunks, not in a folder: what a job refers to is stored in the
job's own transaction and is in every backup, and several API hosts need no shared disk. Chunks
bound what one read holds in memory. Equal bytes are stored once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import cast

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from db.farm.checking import checked_hash, checked_text
from db.farm.errors import absent
from db.farm.owners import ROW_BYTES, Owner, add_bytes_within
from db.farm.records import Artifact
from db.farm.rows import artifact_of
from db.farm.run_records import ArtifactContent
from db.farm.statements import ARTIFACT, ARTIFACT_OF_BOARD, CHUNK, NEW_CHUNK
from db.farm.tables import ArtifactRow
from db.transactions import Transactions, insert_if_absent
from mapper.errors import LimitError, Problem, StoreError

CHUNK_BYTES = 1 << 20
MAX_ARTIFACT_BYTES = 256 << 20


def bytes_hash(data: bytes) -> str:
    """The name of these bytes."""
    return hashlib.sha256(data).hexdigest()


class Artifacts:
    """Stores bytes and reads them back, verified."""

    def __init__(self, transactions: Transactions, now: Callable[[], datetime]) -> None:
        self._transactions = transactions
        self._now = now

    def put(self, content: ArtifactContent, owner: Owner | None = None) -> Artifact:
        """Store bytes unless they are there; ``LimitError`` beyond 256 MiB, ``ConflictError``
        where the owner has no room for them."""
        name = check_content(content)
        principal = None if owner is None else owner.principal
        with self._transactions.write() as session:
            n_bytes = put_artifact(session, content, name, principal, self._now())
            if n_bytes and owner is not None:
                add_bytes_within(session, owner, n_bytes)
            return artifact_of(session.get_one(ArtifactRow, name))

    def find(self, name: str) -> Artifact | None:
        """What is known of the bytes of this hash; None if they are not stored."""
        checked_hash("artifact", name)
        with self._transactions.look() as connection:
            row = connection.execute(ARTIFACT, {"name": name}).one_or_none()
        return None if row is None else artifact_of(cast("ArtifactRow", row))

    def of_board(self, name: str, board_id: str) -> tuple[Artifact, bytes | None] | None:
        """What is known of the bytes of this hash where a run that the board measures, perhaps as
        a stand-in, refers to them; with the bytes, if they are no more than a chunk.

        ``StoreError`` if these are damaged.
        """
        checked_hash("artifact", name)
        asked = {"name": name, "board": checked_text("board_id", board_id), "most": CHUNK_BYTES}
        with self._transactions.look() as connection:
            row = connection.execute(ARTIFACT_OF_BOARD, asked).one_or_none()
        if row is None:
            return None
        if row.data is not None and bytes_hash(row.data) != name:
            raise _damaged(name)
        return artifact_of(cast("ArtifactRow", row)), row.data

    def missing(self, names: Iterable[str]) -> frozenset[str]:
        """Those of these hashes (at most 1,000) that are not stored."""
        wanted = {checked_hash("artifact", name) for name in names}
        with self._transactions.read() as session:
            return frozenset(missing_artifacts(session, wanted))

    def read(self, name: str) -> bytes:
        """The bytes; ``AbsentError`` if not stored, ``StoreError`` if they are damaged."""
        return b"".join(self.chunks(name))

    def chunks(self, name: str) -> Iterator[bytes]:
        """The bytes in parts of at most 1 MiB, each read in a transaction of its own.

        Raises ``AbsentError`` before the first part; after the last ``StoreError`` if the whole
        is not what was stored.
        """
        artifact = self.find(name)
        if artifact is None:
            raise absent("artifact", name)
        digest, size, number = hashlib.sha256(), 0, 0
        while size < artifact.size:
            with self._transactions.look() as connection:
                asked = {"name": name, "number": number}
                data = connection.execute(CHUNK, asked).scalar_one_or_none()
            if not data:
                break
            digest.update(data)
            size += len(data)
            number += 1
            yield data
        if digest.hexdigest() != name:
            raise _damaged(name)


def _damaged(name: str) -> StoreError:
    return StoreError(
        Problem(f"artifacts/{name}", "the bytes are damaged", remedy="restore a backup")
    )


def check_content(content: ArtifactContent) -> str:
    """The hash of what may be stored; ``LimitError`` and ``InputError`` for what may not."""
    checked_text("media_type", content.media_type, most=128, least=1)
    if len(content.data) > MAX_ARTIFACT_BYTES:
        raise LimitError(
            Problem(
                "artifact", "is too large", f"{len(content.data)} bytes", f"{MAX_ARTIFACT_BYTES}"
            )
        )
    return bytes_hash(content.data)


def put_artifact(
    session: Session, content: ArtifactContent, name: str, principal: str | None, now: datetime
) -> int:
    """Store bytes unless they are there; if they are, say that they are still wanted. What they
    count for the owner that they are stored for."""
    row = {
        "hash": name,
        "size": len(content.data),
        "media_type": content.media_type,
        "created_at": now,
        "touched_at": now,
        "principal": principal,
    }
    if not insert_if_absent(session, ArtifactRow, row):
        # Pruning looks at this once more after it has waited for us.
        session.execute(
            update(ArtifactRow).where(ArtifactRow.hash == name).values(touched_at=now),
            execution_options={"synchronize_session": False},
        )
        return 0
    for number, start in enumerate(range(0, len(content.data), CHUNK_BYTES)):
        data = content.data[start : start + CHUNK_BYTES]
        session.execute(NEW_CHUNK, {"hash": name, "number": number, "data": data})
    return len(content.data) + ROW_BYTES


def missing_artifacts(session: Session, names: set[str]) -> set[str]:
    """Those that are not stored; the others cannot be pruned before the transaction's end."""
    if not names:
        return set()
    found = session.scalars(
        select(ArtifactRow.hash)
        .where(ArtifactRow.hash.in_(names))
        .order_by(ArtifactRow.hash)
        .with_for_update(read=True, key_share=True)
    )
    return names - set(found)
