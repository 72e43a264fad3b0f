"""The tables. A change here needs a migration: a test compares the two."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from mapper.measurement import OUTCOME_KINDS

# SQLite numbers rows by itself only where the key is spelled INTEGER.
RowId = BigInteger().with_variant(Integer(), "sqlite")


class AsciiName(TypeDecorator[str]):
    """Names that we make ourselves: hashes and identifiers. A text that cannot be one of them,
    and that no database would take, names nothing: it is looked for as the empty text."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or (value.isascii() and "\0" not in value):
            return value
        return ""


Hash = AsciiName(64)


class UtcDateTime(TypeDecorator[datetime]):
    """A time with its zone; SQLite keeps none, so UTC goes in and comes out."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """Names every constraint, so that migrations can drop it on any database."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class ProgramRow(Base):
    """``principal`` is the owner for whom it was stored first, None for nobody: such a program is
    kept for good. ``touched_at`` is when it was stored or used last. ``written_hash`` is that of
    the program without its schedule, where it has one, else its own."""

    __tablename__ = "programs"

    hash: Mapped[str] = mapped_column(Hash, primary_key=True)
    schema: Mapped[str] = mapped_column(String(64))
    json_text: Mapped[str] = mapped_column(Text)
    written_hash: Mapped[str | None] = mapped_column(Hash, index=True)
    principal: Mapped[str | None] = mapped_column(Text)
    touched_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class DeviceRow(Base):
    __tablename__ = "devices"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    fingerprint: Mapped[str] = mapped_column(Hash, unique=True)
    name: Mapped[str] = mapped_column(Text)
    facts: Mapped[dict[str, Any]] = mapped_column(JSON)


class StudyRow(Base):
    __tablename__ = "studies"
    __table_args__ = (
        UniqueConstraint(
            "program_hash", "device_id", "mode", "seed", "label", "variant", name="uq_studies_key"
        ),
    )

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    program_hash: Mapped[str] = mapped_column(ForeignKey("programs.hash"))
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id"))
    mode: Mapped[str] = mapped_column(String(64))
    seed: Mapped[int] = mapped_column(BigInteger)
    label: Mapped[str] = mapped_column(Text)
    variant: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class CandidateRow(Base):
    """``source_hash`` and ``nestmap_version`` are those of the first time it was stored."""

    __tablename__ = "candidates"

    id: Mapped[str] = mapped_column(Hash, primary_key=True)
    program_hash: Mapped[str] = mapped_column(ForeignKey("programs.hash"))
    parameters: Mapped[dict[str, Any]] = mapped_column(JSON)
    mapping: Mapped[Any] = mapped_column(JSON, nullable=False)
    local_sizes: Mapped[Any] = mapped_column(JSON, nullable=False)
    source_hash: Mapped[str] = mapped_column(String(64))
    memory_bytes: Mapped[int] = mapped_column(BigInteger)
    nestmap_version: Mapped[str] = mapped_column(String(64))


_KINDS = ", ".join(f"'{kind}'" for kind in OUTCOME_KINDS)


class MeasurementRow(Base):
    """``trials`` are packed little-endian 64-bit integers: one value, not a row a trial. ``spans``
    are as many, first start to last end; None for what was measured before they were kept.
    ``time_ms`` is of the trials (:mod:`mapper.measurement` says which time is used where).
    ``board_id`` is None for what was measured without the farm."""

    __tablename__ = "measurements"
    __table_args__ = (
        UniqueConstraint("study_id", "candidate_id"),
        # The front is read off this index in order.
        Index(None, "study_id", "time_ms", "memory_bytes"),
        Index(None, "candidate_id"),
        CheckConstraint(f"kind IN ({_KINDS})", name="kind"),
        CheckConstraint("(kind = 'timed') = (time_ms IS NOT NULL)", name="timed_has_time"),
        CheckConstraint("(kind = 'timed') = (trials IS NOT NULL)", name="timed_has_trials"),
    )

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    study_id: Mapped[int] = mapped_column(ForeignKey("studies.id"))
    candidate_id: Mapped[str] = mapped_column(ForeignKey("candidates.id"))
    kind: Mapped[str] = mapped_column(String(32))
    detail: Mapped[dict[str, Any]] = mapped_column(JSON)
    trials: Mapped[bytes | None] = mapped_column(LargeBinary)
    time_ms: Mapped[float | None] = mapped_column(Double)
    memory_bytes: Mapped[int] = mapped_column(BigInteger)
    source_hash: Mapped[str] = mapped_column(String(64))
    nestmap_version: Mapped[str] = mapped_column(String(64))
    started_at: Mapped[datetime] = mapped_column(UtcDateTime)
    board_id: Mapped[str | None] = mapped_column(AsciiName(32))
    spans: Mapped[bytes | None] = mapped_column(LargeBinary)
