"""Tuning runs: created once, paused, resumed, cancelled, and read at the cost of one row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import Text, cast, func, insert, select, update
from sqlalchemy.orm import Session

from db.canonical import canonical_json
from db.codecs import decode_outcome
from db.farm.checking import (
    MAX_REQUEST_BYTES,
    checked_integer,
    checked_json,
    checked_limit,
    checked_number,
    checked_text,
)
from db.farm.earlier import earlier_best, earlier_studies
from db.farm.errors import AbsentError, ConflictError, absent
from db.farm.idempotency import Responder, once
from db.farm.identifiers import RUN_PREFIX, new_identifier
from db.farm.lifecycle import (
    add_event,
    add_propose_job,
    cancel_open_jobs,
    end_run,
    lock_run,
    lock_runs,
    set_state,
    settle,
)
from db.farm.owners import ROW_BYTES, Owner, add_bytes_within
from db.farm.paging import before, within
from db.farm.records import IdempotencyKey, Keyset
from db.farm.rows import run_of
from db.farm.run_records import (
    Accepted,
    DeviceState,
    EarlierBest,
    EarlierStudy,
    NewRun,
    OwnedStudy,
    Run,
    RunHistory,
)
from db.farm.states import BoardState, EventKind, JobKind, JobState, RunState
from db.farm.tables import BoardRow, JobRow, OwnerRow, RunBoardRow, RunRow, RunStudyRow, StruckRow
from db.tables import DeviceRow, MeasurementRow, StudyRow
from db.transactions import Transactions
from mapper.errors import InputError, LimitError, Problem
from mapper.measurement import OUTCOME_KINDS, Outcome, in_brief

_OPEN = (RunState.QUEUED, RunState.RUNNING, RunState.PAUSED)
MOST_SECONDS = 366 * 86_400.0
#: Bytes of what was asked for that one page of runs reads.
MOST_OF_A_PAGE = 4 * 2**20
#: Measurements whose trials are in memory at once.
_AT_ONCE = 1_000
MOST_LOW_WATER = 1_000
MOST_PRIORITY = 100
MOST_STAND_INS = 255
_SETTABLE = (JobState.QUEUED, JobState.LEASED)


class Runs:
    """Creates runs and takes them through their states.

    ``AbsentError`` for an unknown run, ``ConflictError`` (an ``InputError``) for a step that
    its state does not allow.
    """

    def __init__(self, transactions: Transactions, now: Callable[[], datetime]) -> None:
        self._transactions = transactions
        self._now = now

    def create(
        self,
        new: NewRun,
        idempotency: IdempotencyKey | None = None,
        respond: Responder[Run] | None = None,
    ) -> Accepted[Run]:
        """Store a run, its first ``propose`` job, an event and the idempotency key at once.

        ``respond`` makes the response that is kept with the key from the new run; it must be
        quick and pure. Raises ``AbsentError`` for an unknown board, ``ConflictError`` for a
        disabled one, ``IdempotencyKeyReused``, ``InputError`` (a stand-in of another profile,
        for one), ``LimitError``.
        """
        _check(new)

        def create(session: Session, now: datetime) -> Run:
            board = _enabled(session, new.board_id, "board")
            for number, board_id in enumerate(new.stand_ins):
                stand_in = _enabled(session, board_id, f"stand_ins/{number}")
                if stand_in.profile != board.profile:
                    raise InputError(
                        Problem(
                            "stand_ins",
                            "a device of another profile cannot stand in",
                            f"{board_id} with {stand_in.profile}",
                            f"devices with {board.profile}",
                        )
                    )
            run_id = new_identifier(RUN_PREFIX, now)
            session.execute(insert(RunRow).values(_new_row(new, run_id, now)))
            if new.stand_ins:
                boards = sorted({new.board_id, *new.stand_ins})
                rows = [{"run_id": run_id, "board_id": board_id} for board_id in boards]
                session.execute(insert(RunBoardRow), rows)
            run = lock_run(session, run_id)
            job_id = add_propose_job(session, run, now)
            payload = {"label": run.label, "board": run.board_id, "job": job_id}
            add_event(session, now, EventKind.RUN_CREATED, payload, run_id=run_id)
            n_bytes = len(canonical_json(dict(new.request))) + ROW_BYTES
            add_bytes_within(session, Owner(new.principal, new.most_bytes), n_bytes)
            # The owner's row is locked now: of several at once each sees those before it.
            _refuse_too_much(session, new)
            return run_of(run, now)

        with self._transactions.write() as session:
            return once(session, self._now(), idempotency, create, _run, respond)

    def run(self, run_id: str) -> Run:
        """The run of an id with its progress: one row."""
        with self._transactions.read() as session:
            return _run(session, run_id, self._now())

    def page(
        self,
        *,
        limit: int = 50,
        after: Keyset | None = None,
        state: RunState | None = None,
        board_id: str | None = None,
        label: str | None = None,
    ) -> tuple[Run, ...]:
        """The first of :meth:`page_and_more`."""
        return self.page_and_more(
            limit=limit, after=after, state=state, board_id=board_id, label=label
        )[0]

    def page_and_more(
        self,
        *,
        limit: int = 50,
        after: Keyset | None = None,
        state: RunState | None = None,
        board_id: str | None = None,
        label: str | None = None,
        most_bytes: int = MOST_OF_A_PAGE,
    ) -> tuple[tuple[Run, ...], bool]:
        """Runs, newest first, from behind ``after`` (the last one of the page before), and whether
        there are more.

        They are one at least, ``limit`` at most, and fewer where what they were asked has more
        than ``most_bytes``: a run may be of a program that is as large as programs may be.
        """
        order = (RunRow.created_at.desc(), RunRow.id.desc())
        sizes = select(RunRow.id, func.length(cast(RunRow.request, Text))).order_by(*order)
        if after is not None:
            sizes = sizes.where(before(RunRow.created_at, RunRow.id, after))
        if state is not None:
            sizes = sizes.where(RunRow.state == state)
        if board_id is not None:
            named = checked_text("board_id", board_id)
            of_several = select(RunBoardRow.run_id).where(RunBoardRow.board_id == named)
            sizes = sizes.where((RunRow.board_id == named) | RunRow.id.in_(of_several))
        if label is not None:
            sizes = sizes.where(RunRow.label == checked_text("label", label))
        with self._transactions.read() as session:
            now = self._now()
            found = session.execute(sizes.limit(checked_limit(limit) + 1)).all()
            ids = within(((run_id, n_bytes) for run_id, n_bytes in found[:limit]), most_bytes)
            rows = select(RunRow).where(RunRow.id.in_(ids)).order_by(*order)
            page = tuple(run_of(row, now) for row in session.scalars(rows))
        return page, len(found) > len(page)

    def pause(self, run_id: str) -> Run:
        """Give out no more jobs of the run; what is under way goes on. A repeat is allowed."""
        with self._transactions.write() as session:
            now = self._now()
            run = lock_run(session, run_id)
            if run.state != RunState.PAUSED:
                set_state(session, run, RunState.PAUSED, now, "")
                _hold(session, run_id, True)
            return run_of(run, now)

    def resume(self, run_id: str) -> Run:
        """Go on with a paused run. A repeat is allowed."""
        with self._transactions.write() as session:
            now = self._now()
            run = lock_run(session, run_id)
            if run.state == RunState.PAUSED:
                after = RunState.QUEUED if run.started_at is None else RunState.RUNNING
                set_state(session, run, after, now, "")
                _hold(session, run_id, False)
                settle(session, run, now)
            elif run.state not in (RunState.QUEUED, RunState.RUNNING):
                raise ConflictError(
                    Problem("run.state", "only a paused run can be resumed", run.state, "paused")
                )
            return run_of(run, now)

    def cancel(self, run_id: str) -> Run:
        """Drop what is queued; ``cancelling`` until the measurement under way has ended or its
        lease has run out, then ``cancelled``. A repeat is allowed."""
        with self._transactions.write() as session:
            now = self._now()
            run = lock_run(session, run_id)
            if run.state not in (RunState.CANCELLING, RunState.CANCELLED):
                set_state(session, run, RunState.CANCELLING, now, "")
                cancel_open_jobs(session, run_id, now)
                settle(session, run, now)
            return run_of(run, now)

    def end_beyond(self, most_candidates: int, most_bytes: int) -> tuple[str, ...]:
        """Finish the open runs of each token whose runs have proposed more, or that has more
        stored; which these were."""
        greedy = (
            select(RunRow.principal)
            .group_by(RunRow.principal)
            .having(func.sum(RunRow.proposed) > most_candidates)
        )
        full = select(OwnerRow.principal).where(OwnerRow.stored_bytes > most_bytes)
        with self._transactions.write() as session:
            now = self._now()
            reasons: dict[str, str] = {}
            for owners, reason in (
                (full, "bytes of its owner"),
                (greedy, "candidates of its owner"),
            ):
                found = select(RunRow.id).where(
                    RunRow.principal.in_(owners), RunRow.state.in_(_OPEN)
                )
                reasons |= dict.fromkeys(session.scalars(found), reason)
            runs = lock_runs(session, reasons)
            # One may have ended before it was locked.
            ended = [run for run in runs.values() if run.state in _OPEN]
            for run in ended:
                end_run(session, run, RunState.FINISHED, now, reasons[run.id])
            return tuple(run.id for run in ended)

    def fail(self, run_id: str, reason: str) -> Run:
        """End a run that cannot go on, with a reason for people."""
        with self._transactions.write() as session:
            now = self._now()
            run = lock_run(session, run_id)
            end_run(session, run, RunState.FAILED, now, reason)
            return run_of(run, now)

    def studies(self, run_id: str) -> tuple[OwnedStudy, ...]:
        """The studies of a run, oldest first."""
        with self._transactions.read() as session:
            _run(session, run_id, self._now())
            return _studies(session, run_id)

    def history(self, run_id: str) -> RunHistory:
        """What a strategy needs to propose: everything that the run has measured or queued, each
        outcome in brief (:func:`mapper.measurement.in_brief`)."""
        with self._transactions.read() as session:
            row = session.get(RunRow, run_id)
            if row is None:
                raise absent("run", run_id)
            studies = _studies(session, run_id)
            outcomes = _outcomes(session, [study.study_id for study in studies])
            waiting: set[tuple[int, str]] = set()
            lost: set[tuple[int, str]] = set()
            jobs = session.execute(
                select(JobRow.study_id, JobRow.candidate_id, JobRow.state).where(
                    JobRow.run_id == run_id,
                    JobRow.kind == JobKind.MEASURE,
                    JobRow.state != JobState.DONE,
                )
            )
            for study_id, candidate_id, state in jobs:
                if study_id is not None and candidate_id is not None:
                    (waiting if state in _SETTABLE else lost).add((study_id, candidate_id))
            # Measured and not to be believed: not known, and not asked for again.
            struck = session.execute(
                select(StruckRow.study_id, StruckRow.candidate_id).where(
                    StruckRow.study_id.in_([study.study_id for study in studies])
                )
            )
            lost |= {(study_id, candidate_id) for study_id, candidate_id in struck}
            return RunHistory(
                run=run_of(row, self._now()),
                strategy_state=row.strategy_state,
                studies=studies,
                measured=outcomes,
                open_candidates=frozenset(waiting),
                lost_candidates=frozenset(lost),
            )

    def earlier(self, run_id: str, *, most: int, of_a_study: int) -> tuple[EarlierStudy, ...]:
        """What the run's board had measured of other subjects before the run was made, the
        latest first: ``most`` candidates, ``of_a_study`` of each study at most. Always the same."""
        with self._transactions.read() as session:
            row = session.get(RunRow, run_id)
            if row is None:
                raise absent("run", run_id)
            return tuple(earlier_studies(session, row, most, of_a_study))

    def earlier_best(self, run_id: str, *, of_a_study: int) -> tuple[EarlierBest, ...]:
        """What was fast in earlier runs of the run's subject on its board."""
        with self._transactions.read() as session:
            row = session.get(RunRow, run_id)
            if row is None:
                raise absent("run", run_id)
            return tuple(earlier_best(session, row, of_a_study))


def _outcomes(session: Session, study_ids: list[int]) -> dict[tuple[int, str], Outcome]:
    """All of the studies in brief, oldest first. Trials are read of some at a time: together they
    may be more than there is memory for."""
    of_studies = select(MeasurementRow.id).where(MeasurementRow.study_id.in_(study_ids))
    ids = session.scalars(of_studies.order_by(MeasurementRow.id)).all()
    found: dict[tuple[int, str], Outcome] = {}
    for start in range(0, len(ids), _AT_ONCE):
        rows = session.execute(
            select(
                MeasurementRow.study_id,
                MeasurementRow.candidate_id,
                MeasurementRow.kind,
                MeasurementRow.detail,
                MeasurementRow.trials,
                MeasurementRow.spans,
            )
            .where(MeasurementRow.id.in_(ids[start : start + _AT_ONCE]))
            .order_by(MeasurementRow.id)
        )
        for study_id, candidate_id, kind, detail, trials, spans in rows:
            outcome = in_brief(decode_outcome(kind, detail, trials, spans))
            found[study_id, candidate_id] = outcome
    return found


def _refuse_too_much(session: Session, new: NewRun) -> None:
    """ConflictError where its token has, with this one, more runs or candidates than it may have;
    it undoes all that the transaction has stored."""
    owned = (
        select(func.count()).where(RunRow.principal == new.principal, RunRow.state.in_(_OPEN)),
        select(func.coalesce(func.sum(RunRow.proposed), 0)).where(
            RunRow.principal == new.principal
        ),
    )
    opened, proposed = (int(session.scalar(one) or 0) for one in owned)
    if opened > new.most_open:
        raise ConflictError(
            Problem("owner", "has too many runs that have not ended", str(opened - 1),
                    f"{new.most_open} of a token", "cancel some, or wait for them")
        )  # fmt: skip
    if proposed + (new.budget_candidates or 1) > new.most_candidates:
        raise ConflictError(
            Problem("owner", "has too many candidates in its runs", str(proposed),
                    f"{new.most_candidates} of a token", "a smaller budget, or fewer runs")
        )  # fmt: skip


def _check(new: NewRun) -> None:
    checked_text("board_id", new.board_id)
    checked_text("label", new.label)
    checked_text("principal", new.principal)
    checked_json("request", new.request, MAX_REQUEST_BYTES)
    checked_integer("priority", new.priority, -MOST_PRIORITY, MOST_PRIORITY)
    checked_integer("low_water", new.low_water, 1, MOST_LOW_WATER)
    if len(new.stand_ins) > MOST_STAND_INS:
        raise LimitError(
            Problem("stand_ins", "too many", str(len(new.stand_ins)), f"{MOST_STAND_INS} or fewer")
        )
    for number, board_id in enumerate(new.stand_ins):
        checked_text(f"stand_ins/{number}", board_id)
    if new.budget_candidates is not None:
        checked_integer("budget_candidates", new.budget_candidates, 1)
    if new.budget_seconds is not None:
        checked_number("budget_seconds", new.budget_seconds, 1e-3, MOST_SECONDS)


def _enabled(session: Session, board_id: str, path: str) -> BoardRow:
    """The board; errors name the field ``path`` of the run that asked for it."""
    board = session.get(BoardRow, board_id)
    if board is None:
        found = ascii(board_id)[:80]
        raise AbsentError(Problem(path, "no such board in the store", found=found))
    if board.state == BoardState.DISABLED:
        raise ConflictError(Problem("board", "is disabled", board.reason, "an active board"))
    return board


def _new_row(new: NewRun, run_id: str, now: datetime) -> dict[str, object]:
    counters = {kind.replace("-", "_"): 0 for kind in OUTCOME_KINDS}
    return {
        "id": run_id,
        "board_id": new.board_id,
        "label": new.label,
        "principal": new.principal,
        "request": dict(new.request),
        "state": RunState.QUEUED,
        "reason": "",
        "priority": new.priority,
        "low_water": new.low_water,
        "budget_candidates": new.budget_candidates,
        "budget_seconds": new.budget_seconds,
        "strategy_state": None,
        "exhausted": False,
        "proposed": 0,
        "lost": 0,
        **counters,
        "best_ms": None,
        "best_memory_bytes": None,
        "best_candidate_id": None,
        "pruned_event_id": 0,
        "created_at": now,
        "started_at": None,
        "resumed_at": None,
        "active_s": 0.0,
        "ended_at": None,
    }


def _hold(session: Session, run_id: str, held: bool) -> None:
    session.execute(
        update(JobRow)
        .where(JobRow.run_id == run_id, JobRow.state == JobState.QUEUED)
        .values(held=held),
        execution_options={"synchronize_session": False},
    )


def _run(session: Session, run_id: str, now: datetime) -> Run:
    row = session.get(RunRow, run_id)
    if row is None:
        raise absent("run", run_id)
    return run_of(row, now)


def _studies(session: Session, run_id: str) -> tuple[OwnedStudy, ...]:
    rows = session.execute(
        select(StudyRow, DeviceRow)
        .join(RunStudyRow, RunStudyRow.study_id == StudyRow.id)
        .join(DeviceRow, DeviceRow.id == StudyRow.device_id)
        .where(RunStudyRow.run_id == run_id)
        .order_by(StudyRow.id)
    )
    return tuple(
        OwnedStudy(
            study_id=study.id,
            program_hash=study.program_hash,
            variant=study.variant,
            mode=study.mode,
            seed=study.seed,
            device=DeviceState(device.name, device.facts),
        )
        for study, device in rows
    )
