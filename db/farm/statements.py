"""Statements of the lease protocol, made once: a thousand boards ask them all the time.

SQLAlchemy takes longer to put such a statement together than PostgreSQL takes to answer it, so
that these wait with named parameters. They are on tables, not on mapped classes: their rows have
the columns by the same names. States stand in them as they are, not as parameters: only so does
a plan that PostgreSQL keeps for all parameters use the partial indexes.
"""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Exists,
    Integer,
    Select,
    String,
    Text,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    literal_column,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.sql.dml import ReturningUpdate

from db.farm.deadlines import TIMEOUT_S
from db.farm.states import BoardState, JobKind, JobState, RunState
from db.farm.tables import (
    ArtifactChunkRow,
    ArtifactRow,
    BoardFactsRow,
    BoardRow,
    EventRow,
    JobAttemptRow,
    JobRow,
    RunArtifactRow,
    RunBoardRow,
    RunRow,
    TokenRow,
)
from db.transactions import table_of

_jobs = table_of(JobRow)
_boards = table_of(BoardRow)
_attempts = table_of(JobAttemptRow)
_runs = table_of(RunRow)
_run_boards = table_of(RunBoardRow)
_history = table_of(BoardFactsRow)
_tokens = table_of(TokenRow)
_artifacts = table_of(ArtifactRow)
_chunks = table_of(ArtifactChunkRow)
_of_run = table_of(RunArtifactRow)
_job, _board, _attempt, _token = _jobs.c, _boards.c, _attempts.c, _tokens.c

_QUEUED, _LEASED, _MEASURE, _ACTIVE = (
    literal_column(f"'{word}'", String)
    for word in (JobState.QUEUED, JobState.LEASED, JobKind.MEASURE, BoardState.ACTIVE)
)
_ONE = literal_column("1", Integer)

_now = bindparam("now", type_=_job.not_before.type)
#: Jobs that may be claimed, but for the number of their attempts.
_waiting = and_(_job.state == _QUEUED, _job.held.is_(False), _job.not_before <= _now)
_lapsed = and_(_job.state == _LEASED, _job.lease_until < _now)
_claimable = and_(_waiting, _job.attempt < _job.max_attempts)
_of_board = _job.board_id == bindparam("board")
_runs_of_board = select(_run_boards.c.run_id).where(_run_boards.c.board_id == bindparam("board"))
#: Jobs of other boards, in runs that this board measures too.
_shared = and_(
    _job.run_id.in_(_runs_of_board),
    _job.kind == _MEASURE,
    _job.board_id != bindparam("board"),
)

#: ``board``, ``now``: what a claim for the board will find (:class:`db.farm.leases.Outlook`).
OUTLOOK = (
    select(
        exists().where(_of_board, _waiting),
        exists().where(_of_board, _lapsed | (_waiting & (_job.attempt >= _job.max_attempts))),
        exists().where(_shared, _waiting | _lapsed),
    )
    .select_from(_boards)
    .where(_board.id == bindparam("board"))
)

#: ``board``: its state, locked against other claims for it.
LOCK_BOARD = (
    select(_board.state, _board.last_seen)
    .where(_board.id == bindparam("board"))
    .with_for_update(key_share=True)
)

#: ``board``, ``seen``: it has called.
SEEN_NOW = (
    update(_boards).where(_board.id == bindparam("board")).values(last_seen=bindparam("seen"))
)

#: ``board``, ``seen``, ``new_health``: it has called, and how it is.
CALLED = (
    update(_boards)
    .where(_board.id == bindparam("board"))
    .values(last_seen=bindparam("seen"), health=bindparam("new_health"))
)

#: ``board``: what is on record of it.
BOARD = select(*_board).where(_board.id == bindparam("board"))
#: ``board``: when it last said how it is.
NEWEST_HISTORY = (
    select(_history.c.at)
    .where(_history.c.board_id == bindparam("board"))
    .order_by(_history.c.id.desc())
    .limit(_ONE)
)

NEW_HISTORY = insert(_history)
#: ``board``, ``kept``: all but its newest entries are dropped.
OLD_HISTORY = delete(_history).where(
    _history.c.board_id == bindparam("board"),
    _history.c.id
    <= select(_history.c.id)
    .where(_history.c.board_id == bindparam("board"))
    .order_by(_history.c.id.desc())
    .offset(bindparam("kept", type_=Integer))
    .limit(_ONE)
    .scalar_subquery(),
)


def board_is_busy(board: ColumnElement[str]) -> Exists:
    """Whether the board holds a lease that has not been ended."""
    other = _jobs.alias("live")
    return exists().where(other.c.board_id == board, other.c.state == _LEASED)


_busy = board_is_busy(bindparam("board", type_=_job.board_id.type))


#: Of a statement whose own commit need not wait for the disk; for one that is a transaction of its
#: own, on PostgreSQL. Nothing was written where it has no row.
_NEED_NOT_LAST = func.set_config("synchronous_commit", "off", true())


def _first(
    *which: ColumnElement[bool], before: tuple[ColumnElement[bool], ...] = ()
) -> ColumnElement[str]:
    """The first claimable job of those, what is not ``before`` being first. Jobs that another
    transaction is about to take are passed over on PostgreSQL; on SQLite there is no other
    writer."""
    return (
        select(_job.id)
        .where(*which, _claimable)
        .order_by(*before, _job.rank, _job.id)
        .limit(_ONE)
        .with_for_update(skip_locked=True)
        .scalar_subquery()
    )


def _taking(
    *which: ColumnElement[bool], before: tuple[ColumnElement[bool], ...] = ()
) -> ReturningUpdate[tuple[object, ...]]:
    return (
        update(_jobs)
        .where(_job.id == _first(*which, before=before), _job.state == _QUEUED)
        .values(
            state=JobState.LEASED,
            attempt=_job.attempt + 1,
            lease_hash=bindparam("token_hash"),
            lease_until=bindparam("until"),
            stage="",
        )
        .returning(*_jobs.c)
    )


# A lease that has run out counts as well: the claim itself clears it away.
_own_waits = exists().where(_job.board_id == _board.id, _waiting | _lapsed)
_shared_waits = exists().where(
    _run_boards.c.board_id == _board.id,
    _job.run_id == _run_boards.c.run_id,
    _job.kind == _MEASURE,
    _waiting | _lapsed,
)
_other = _jobs.alias("live")
_is_at_work = exists().where(
    _other.c.board_id == _board.id, _other.c.state == _LEASED, _other.c.lease_until >= _now
)
_WAITING_BOARDS = select(_board.id).where(
    _board.state == BoardState.ACTIVE, _own_waits | _shared_waits, ~_is_at_work
)


def waiting_boards(dialect: str) -> Select[str]:
    """``names`` (a list on PostgreSQL, the text of a JSON list on SQLite), ``now``: those of the
    boards that would get a job if they asked. However many they are, it is one parameter."""
    if dialect == "postgresql":
        among = _board.id == func.any(bindparam("names", type_=ARRAY(Text)))
    else:
        named = func.json_each(bindparam("names", type_=Text)).table_valued("value")
        among = _board.id.in_(select(named.c.value))
    return _WAITING_BOARDS.where(among)


def _claim_at_once() -> Select[tuple[object, ...]]:
    """All of a claim for a board as one statement, where ``WITH`` writes as well: what
    :data:`LOCK_BOARD`, :data:`TAKE_FOR_BOARD` and :data:`NEW_ATTEMPT` do one after the other.

    It sees the database as it was when it began. Another lease that the board has got meanwhile
    is refused by the unique index, not found busy.
    """
    board = (
        select(_board.id)
        .where(_board.id == bindparam("board"), _board.state == _ACTIVE)
        .with_for_update(key_share=True)
        .cte("board")
    )
    taken = _taking(_of_board, ~_busy, exists(select(board.c.id))).cte("taken")
    columns = ("job_id", "attempt", "owner", "claimed_at", "reason")
    values = select(
        taken.c.id,
        taken.c.attempt,
        bindparam("owner", type_=Text),
        _now,
        literal_column("''", Text),
    )
    attempt = insert(_attempts).from_select(columns, values, include_defaults=False)
    called = (
        update(_boards)
        .where(_board.id == bindparam("board"), _board.last_seen <= bindparam("seen_before"))
        .values(last_seen=_now)
    )
    claimed = select(*taken.c, _NEED_NOT_LAST)
    return claimed.add_cte(attempt.cte("attempt"), called.cte("called"))


_work = and_(_job.board_id.is_(None), _job.kind.in_(bindparam("kinds", expanding=True)))
_at_work = _jobs.alias("at_work")
#: Whether a job's owner has one of these kinds under way. Read once, not for each job.
_owner_at_work = _job.principal.in_(
    select(_at_work.c.principal).where(
        _at_work.c.state == _LEASED,
        _at_work.c.board_id.is_(None),
        _at_work.c.kind.in_(bindparam("kinds", expanding=True)),
    )
)
#: Lease the first claimable job: ``now``, ``token_hash``, ``until``, and ``board`` or ``kinds``.
TAKE_FOR_BOARD = _taking(_of_board, ~_busy)
#: The whole claim, on PostgreSQL: ``board``, ``owner``, ``now``, ``seen_before``, ``token_hash``,
#: ``until``.
CLAIM_AT_ONCE = _claim_at_once()
TAKE_WORK = _taking(_work, before=(_owner_at_work,))
#: The same of those who have none of these kinds under way.
TAKE_ANOTHERS_WORK = _taking(_work, ~_owner_at_work)
#: The same, where it is the job ``named``.
TAKE_NAMED_WORK = _taking(_work, _job.id == bindparam("named"))
#: ``kinds``, ``now``: a job that a claim would take or has to clear away.
WORK_WAITS = select(_job.id).where(_work, _waiting | _lapsed).limit(_ONE)
ANOTHERS_WORK_WAITS = (
    select(_job.id).where(_work, (_waiting & ~_owner_at_work) | _lapsed).limit(_ONE)
)

#: ``now``, ``before``: a job for solver workers whose bell was not rung since then.
UNRUNG = (
    select(_job.id)
    .where(
        _job.board_id.is_(None),
        _waiting,
        _job.rung_at.is_(None) | (_job.rung_at <= bindparam("before")),
    )
    .limit(_ONE)
)

#: ``board``, ``now``: give the board the first claimable job that others of its runs' boards have
#: waiting. It becomes the board's own as it is, queued.
TAKE_OVER = (
    update(_jobs)
    .where(_job.id == _first(_shared, ~_busy), _job.state == _QUEUED)
    .values(board_id=bindparam("board"))
    .returning(_job.id)
)

NEW_ATTEMPT = insert(_attempts)
NEW_EVENT = insert(table_of(EventRow))
NEW_JOB = insert(_jobs)
NEW_CHUNK = insert(_chunks)

#: ``job``, ``number``, and the values: an attempt has ended.
END_ATTEMPT = (
    update(_attempts)
    .where(_attempt.job_id == bindparam("job"), _attempt.attempt == bindparam("number"))
    .values(
        ending=bindparam("new_ending"),
        ended_at=bindparam("new_ended_at"),
        reason=bindparam("new_reason"),
    )
)
#: ``job``, ``new_state``, ``new_job_ended_at``: a job is final.
END_JOB = (
    update(_jobs)
    .where(_job.id == bindparam("job"))
    .values(
        state=bindparam("new_state"),
        lease_until=None,
        ended_at=bindparam("new_job_ended_at", type_=_job.ended_at.type),
    )
)
#: Both, where ``WITH`` writes as well: on PostgreSQL.
END_JOB_AND_ATTEMPT = END_JOB.add_cte(END_ATTEMPT.cte("attempt"))
_ENDING = [state for state in RunState if state.ended or state is RunState.CANCELLING]
#: Nobody wants what comes of the job: its run is ending, or its board is disabled.
_unwanted = or_(
    exists().where(_runs.c.id == _job.run_id, _runs.c.state.in_(_ENDING)),
    exists().where(_board.id == _job.board_id, _board.state == BoardState.DISABLED),
)
# Both by parameter: in RETURNING, SQLAlchemy names columns without their tables on SQLite, so that
# "attempt = attempt" would hold for every attempt at the job.
_began = (
    select(_attempt.claimed_at)
    .where(_attempt.job_id == bindparam("job"), _attempt.attempt == bindparam("number"))
    .scalar_subquery()
)
_is_held = (
    _job.id == bindparam("job"),
    _job.attempt == bindparam("number"),
    _job.lease_hash == bindparam("token_hash"),
    _job.state == _LEASED,
)
#: Keep a lease that is held: ``job``, ``number``, ``token_hash``, ``until``, ``new_stage``, and
#: ``board``, whose job it must be unless that is None. It finds the end that the lease has now,
#: which is the old one where nobody wants the result, the states that say so, and what bounds the
#: attempt: when it began, and the seconds of the candidate (None where the payload has none, and
#: where it began since ``young``: a large payload is not read for every call).
KEEP_LEASE = (
    update(_jobs)
    .where(
        *_is_held,
        bindparam("board", type_=Text).is_(None)
        | (_job.board_id == bindparam("board", type_=Text)),
    )
    .values(
        lease_until=case((_unwanted, _job.lease_until), else_=bindparam("until")),
        stage=bindparam("new_stage"),
    )
    .returning(
        _job.kind,
        _job.lease_until,
        _began.label("claimed_at"),
        case((_began < bindparam("young"), _job.payload[TIMEOUT_S].as_float())).label("timeout_s"),
        select(_runs.c.state).where(_runs.c.id == _job.run_id).scalar_subquery().label("run_state"),
        select(_board.state)
        .where(_board.id == _job.board_id)
        .scalar_subquery()
        .label("board_state"),
    )
)

#: ``job``, ``number``, ``token_hash``, ``end``: a lease that was kept ends then at the latest.
CUT_LEASE = (
    update(_jobs)
    .where(*_is_held, _job.lease_until > bindparam("end"))
    .values(lease_until=bindparam("end"))
)
#: The same as KEEP_LEASE as a transaction of its own, on PostgreSQL.
KEEP_LEASE_AT_ONCE = KEEP_LEASE.returning(_NEED_NOT_LAST)

#: ``name``: what is known of an artifact; and with ``number``, a chunk of it.
ARTIFACT = select(*_artifacts.c).where(_artifacts.c.hash == bindparam("name"))
CHUNK = select(_chunks.c.data).where(
    _chunks.c.hash == bindparam("name"), _chunks.c.number == bindparam("number")
)
_artifact_of_board = exists().where(
    _of_run.c.hash == _artifacts.c.hash,
    _runs.c.id == _of_run.c.run_id,
    (_runs.c.board_id == bindparam("board")) | _runs.c.id.in_(_runs_of_board),
)
#: ``name``, ``board``, ``most``: an artifact that a run of the board refers to, with its bytes if
#: they are that many at most, which is a chunk or less.
ARTIFACT_OF_BOARD = (
    select(*_artifacts.c, _chunks.c.data)
    .select_from(
        _artifacts.outerjoin(
            _chunks,
            (_chunks.c.hash == _artifacts.c.hash)
            & (_chunks.c.number == literal_column("0", Integer))
            & (_artifacts.c.size <= bindparam("most")),
        )
    )
    .where(_artifacts.c.hash == bindparam("name"), _artifact_of_board)
)

#: ``token``: what is on record of it.
TOKEN = select(*_token).where(_token.id == bindparam("token"))
#: ``token``, ``used``, ``before``: it was used, and the time on record is older than that.
USED_NOW = (
    update(_tokens)
    .where(
        _token.id == bindparam("token"),
        _token.last_used_at.is_(None) | (_token.last_used_at <= bindparam("before")),
    )
    .values(last_used_at=bindparam("used"))
)
