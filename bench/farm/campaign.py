"""The whole bench: services up, one measurement after the other, services down."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sqlalchemy import text

from bench.farm import servers, services
from bench.farm.accounting import Account, account, pick_ups_ms, results_a_second
from bench.farm.boards import Crew
from bench.farm.crews import Crews, Seen, enrolled, serving
from bench.farm.enumeration import enumerate_in_jobs, first_mappings
from bench.farm.figures import summary
from bench.farm.fronts import time_fronts
from bench.farm.load import Injected, Injector
from bench.farm.measured_rows import sizes, write_measurements
from bench.farm.processes import Meter
from bench.farm.services import Api, Host
from db.engine import address_of, open_engine
from db.farm.farm import Farm

SCHEMA = "nestmap/bench-farm/1"
_SETTLE_S = 3.0
_ENDS_WITHIN_S = 90.0
_BOARD_PROCESSES = 2
_ARRIVE_A_SECOND = 40.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything. ``rates`` are jobs offered a second, each for ``seconds``,
    ``runs`` times; a closed loop of ``closed_s`` seconds follows; 0 leaves a part out."""

    boards: int = 1_000
    rates: tuple[float, ...] = (40.0,)
    seconds: float = 60.0
    runs: int = 3
    median_s: float = 1.0
    closed_s: float = 20.0
    studies: int = 100
    points: int = 100_000
    front_repeats: int = 30
    layers: tuple[str, ...] = ()
    first_repeats: int = 15
    workers: tuple[int, ...] = (1, 2)
    mappings: int = 2_000
    mapping_jobs: int = 2
    rounds: int = 3
    api_processes: int = 1
    seed: int = 0


SMALL = Sizes(
    boards=12, rates=(10.0,), seconds=2.0, runs=1, median_s=0.05, closed_s=1.0, studies=3,
    points=500, front_repeats=3, first_repeats=2, workers=(1,), mappings=200, mapping_jobs=1,
    rounds=1,
)  # fmt: skip


def measure(store: str, sizes_: Sizes, keep: Path | None, say: Say) -> dict[str, Any]:
    """Run everything; ``store`` is ``postgres`` or ``sqlite``. What it finds, as JSON.

    Raises InputError where a server is not installed, StoreError where one fails.
    """
    with_broker = store == "postgres"
    servers.require_servers(store, with_broker)
    found: dict[str, Any] = {
        "schema": SCHEMA, "store": store, "sizes": asdict(sizes_), "load_before": _load(),
        "versions": {name: version(name) for name in ("nestmap", "fastapi", "uvicorn")},
    }  # fmt: skip
    with _folder(keep) as folder, contextlib.ExitStack() as stack:
        roots: dict[str, list[int]] = {}
        url, broker = str(folder / "farm.sqlite3"), ""
        if with_broker:
            say("starting PostgreSQL and RabbitMQ")
            database, url = stack.enter_context(servers.postgres(folder))
            queue, broker = stack.enter_context(servers.rabbitmq(folder))
            roots |= {"postgresql": [database.pid], "rabbitmq": [queue.pid]}
        host = Host(folder, url, broker)
        say("starting the API")
        api = stack.enter_context(services.api(host, 2, sizes_.api_processes))
        roots["api"] = api.pids
        found["server"] = _server_version(url)
        if sizes_.layers:
            found["first_mappings"] = _first_mappings(api, url, sizes_, say)
        if sizes_.boards and sizes_.rates:
            found["pick_up"] = _pick_up(host, api, roots, sizes_, say)
        if sizes_.studies:
            found["fronts"] = _fronts(api, url, sizes_, say)
        if sizes_.workers and sizes_.layers:
            found["enumeration"] = _enumeration(host, roots, sizes_, say)
    found["load_after"] = _load()
    return found


def _first_mappings(api: Api, url: str, sizes_: Sizes, say: Say) -> dict[str, Any]:
    with Farm.open(url) as farm, services.user_client(api, farm) as client:
        return first_mappings(client, sizes_.layers, sizes_.first_repeats, say)


def _pick_up(
    host: Host, api: Api, roots: dict[str, list[int]], sizes_: Sizes, say: Say
) -> dict[str, Any]:
    address, port = api.address
    say(f"{sizes_.boards} boards enrol")
    crew = Crew(address, port, [], "",
                median_s=sizes_.median_s, seed=sizes_.seed,
                ramp_s=sizes_.boards / _ARRIVE_A_SECOND)  # fmt: skip
    workers = max(sizes_.workers, default=0) if host.broker else 0
    with contextlib.ExitStack() as stack:
        with Injector(host.store, "enrolling") as injector:
            codes = injector.codes(sizes_.boards, "simulated")
        began = time.monotonic()
        boards = enrolled(_with(crew, boards=codes), host.folder, host.environment)
        enrol_s = time.monotonic() - began
        crew = _with(crew, boards=boards)
        # They have nothing to do, as in a farm whose proposals are made; they are there.
        idle = stack.enter_context(services.solver_workers(host, workers))
        roots = roots | ({"solver workers": [one.pid for one in idle]} if idle else {})
        open_loops: list[dict[str, Any]] = []
        for rate in sizes_.rates:
            for number in range(sizes_.runs):
                label = f"open-{rate:g}-{number}"
                open_loops.append(_open_loop(host, roots, crew, sizes_, rate, label, say))
        found: dict[str, Any] = {
            "enrolled_a_second": round(len(boards) / enrol_s, 1), "open_loops": open_loops
        }  # fmt: skip
        if sizes_.closed_s:
            found["closed_loop"] = _closed_loop(host, roots, crew, sizes_, say)
        engine = open_engine(address_of(host.store))
        found["sizes"] = sizes(engine)
        engine.dispose()
        return found


def _open_loop(
    host: Host,
    roots: dict[str, list[int]],
    crew: Crew,
    sizes_: Sizes,
    rate: float,
    label: str,
    say: Say,
) -> dict[str, Any]:
    """A fixed load offered, whatever becomes of it."""
    count = round(rate * sizes_.seconds)
    load, since = _load(), datetime.now(UTC)
    with Injector(host.store, label) as injector:
        say(f"{label}: {count} runs are made")
        ids = [board for board, _ in crew.boards]
        planned = injector.plan(ids, count)
        with serving(crew, _BOARD_PROCESSES, host.folder, host.environment, label) as crews:
            waiting = services.wait_for_boards(injector, sizes_.boards, since)
            time.sleep(_SETTLE_S)
            say(f"{label}: {waiting} boards wait; {rate:g} jobs a second for {sizes_.seconds:g} s")
            began_ns = time.monotonic_ns()
            with Meter(roots | {"simulated boards": crews.pids}) as meter:
                injected = injector.at_rate(planned, rate, sizes_.seed)
                span_s = (time.monotonic_ns() - began_ns) / 1e9
            injector.wait_until_ended(_ENDS_WITHIN_S)
            # A result that is sent twice comes after the run's end.
            time.sleep(0.5)
        endings = injector.endings()
    pick_ups = pick_ups_ms(injected, crews.seen)
    late = [(one.began_ns - one.due_ns) / 1e6 for one in injected]
    commits = [(one.claimable_ns - one.began_ns) / 1e6 for one in injected]
    found = {
        "offered_a_second": rate,
        "boards_waiting_before": waiting,
        "seconds": round(span_s, 1),
        "stored_a_second": round(
            results_a_second(crews.seen, began_ns, began_ns + int(span_s * 1e9)), 2
        ),
        "pick_up_ms": summary(pick_ups),
        "injected_late_ms": summary(late),
        "proposal_before_commit_ms": summary(commits),
        "load_before": load,
        "load_after": _load(),
        **_of_boards(account(injected, endings, crews.seen), crews),
        "services": meter.report(),
    }
    say(f"{label}: pick-up p50 {found['pick_up_ms']['p50']}, p95 {found['pick_up_ms']['p95']} ms")
    return found


def _closed_loop(
    host: Host, roots: dict[str, list[int]], crew: Crew, sizes_: Sizes, say: Say
) -> dict[str, Any]:
    """Every board always has a job, and answers at once: as much as goes through."""
    each = max(4, round(400 * sizes_.closed_s / sizes_.boards))
    load = _load()
    with Injector(host.store, "closed") as injector:
        say(f"closed loop: {sizes_.boards} runs of {each} jobs are made")
        ids = [board for board, _ in crew.boards]
        planned = injector.plan(ids, sizes_.boards, each)
        injected: list[Injected] = injector.all_at_once(planned, each)
        busy = _with(crew, median_s=0.0)
        with serving(busy, _BOARD_PROCESSES, host.folder, host.environment, "closed") as crews:
            time.sleep(min(_SETTLE_S, sizes_.closed_s))
            began_ns = time.monotonic_ns()
            with Meter(roots | {"simulated boards": crews.pids}) as meter:
                time.sleep(sizes_.closed_s)
            ended_ns = time.monotonic_ns()
            say("closed loop: what is left is cancelled")
            injector.cancel_open(planned)
            injector.wait_until_ended(_ENDS_WITHIN_S)
            time.sleep(0.5)
        endings = injector.endings()
    found = {
        "seconds": sizes_.closed_s,
        "stored_a_second": round(results_a_second(crews.seen, began_ns, ended_ns), 2),
        "result_to_next_job_ms": summary(pick_ups_ms(injected, crews.seen)),
        "load_before": load,
        "load_after": _load(),
        **_of_boards(account(injected, endings, crews.seen), crews),
        "services": meter.report(),
    }
    say(f"closed loop: {found['stored_a_second']} jobs a second")
    return found


def _of_boards(accounted: Account, crews: Crews) -> dict[str, Any]:
    seen: Seen = crews.seen
    return {
        "jobs": asdict(accounted),
        "result_ms": summary(entry["ms"] for entry in seen.sent),
        "calls": dict(seen.calls),
        "errors": dict(seen.errors),
        "late_heartbeats": seen.late_heartbeats,
        "faults": seen.faults,
    }


def _fronts(api: Api, url: str, sizes_: Sizes, say: Say) -> dict[str, Any]:
    engine = open_engine(address_of(url))
    try:
        with Farm.open(url) as farm, services.user_client(api, farm) as client:
            say(f"{sizes_.studies * sizes_.points} measurements are written")
            began = time.monotonic()
            studies = write_measurements(
                farm, engine, sizes_.studies, sizes_.points, sizes_.seed,
                lambda rows: say(f"{rows} measurements"),
            )  # fmt: skip
            wrote_s = time.monotonic() - began
            load = _load()
            found = time_fronts(farm, engine, client, studies, sizes_.front_repeats, say)
            return {
                "measurements": sizes_.studies * sizes_.points,
                "written_in_s": round(wrote_s, 1), "load_before": load, "load_after": _load(),
                "sizes": sizes(engine), **found,
            }  # fmt: skip
    finally:
        engine.dispose()


def _enumeration(
    host: Host, roots: dict[str, list[int]], sizes_: Sizes, say: Say
) -> list[dict[str, Any]]:
    """Solve jobs with so many solver workers; without a broker the embedded runner does them."""
    found: list[dict[str, Any]] = []
    for workers in sizes_.workers if host.broker else (0,):
        with contextlib.ExitStack() as stack:
            started = stack.enter_context(services.solver_workers(host, workers))
            watched = roots | ({"solver workers": [s.pid for s in started]} if started else {})
            farm = stack.enter_context(Farm.open(host.store))
            say(f"enumeration with {workers or 'no'} solver workers")
            load = _load()
            with Meter(watched) as meter:
                rounds = enumerate_in_jobs(
                    farm, sizes_.layers, sizes_.mappings, sizes_.mapping_jobs, sizes_.rounds
                )
            best = max(one["mappings_a_second"] for one in rounds)
            say(f"enumeration with {workers or 'no'} solver workers: {best} mappings a second")
            found.append(
                {"solver_workers": workers, "embedded": not workers, "rounds": rounds,
                 "load_before": load, "load_after": _load(), "services": meter.report()}
            )  # fmt: skip
    return found


def _with(crew: Crew, **changes: Any) -> Crew:
    return Crew(**(asdict(crew) | changes))


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """A folder that goes away, unless somebody wants to look at the logs."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="nm-farm-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def _load() -> list[float]:
    """The machine's load over 1, 5 and 15 minutes, others' work included."""
    return [round(value, 2) for value in os.getloadavg()]


def _server_version(url: str) -> str:
    engine = open_engine(address_of(url))
    try:
        with engine.connect() as connection:
            whole = engine.dialect.name == "postgresql"
            asked = "SELECT version()" if whole else "SELECT 'SQLite ' || sqlite_version()"
            return str(connection.execute(text(asked)).scalar_one())
    finally:
        engine.dispose()
