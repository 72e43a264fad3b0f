"""A thousand boards wait at one service process, as Debian starts it: with 1,024 open files."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from bench.farm.accounting import account, pick_ups_ms
from bench.farm.boards import Crew
from bench.farm.crews import serving
from bench.farm.load import Injector
from bench.farm.services import Host, api
from db.farm.board_steps import add_board
from db.farm.farm import Farm, utc_now
from db.farm.states import Scope
from db.farm.tokens import add_token

BOARDS = 1_000
JOBS = 40
WITHIN_S = 60.0


@contextmanager
def few_open_files() -> Iterator[None]:
    """What is started in the block may have as many as on a new Debian, until it asks for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1_024, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _boards(store: str) -> list[tuple[str, str]]:
    """Ids and tokens, in one transaction: how boards come in is tried elsewhere."""
    with Farm.open(store) as farm, farm.store._transactions.write() as session:
        found: list[tuple[str, str]] = []
        for number in range(BOARDS):
            now, name = utc_now(), f"board {number}"
            row = add_board(session, now, name, None, "", {})
            token = add_token(session, Scope.DEVICE, now, name, row.id, None)
            found.append((row.id, token.text))
        return found


def _waiting(url: str) -> int:
    text = httpx.get(f"{url}/metrics").text
    line = next(line for line in text.splitlines() if line.startswith("nestmap_waiting_boards "))
    return int(float(line.split()[1]))


def _wait_for_boards(url: str) -> None:
    """Until nearly all wait: there are always some who ask again at that moment."""
    end = time.monotonic() + WITHIN_S
    while (waiting := _waiting(url)) < 0.95 * BOARDS:
        assert time.monotonic() < end, f"{waiting} boards wait"
        time.sleep(0.2)


def test_a_thousand_boards_wait_and_those_with_work_get_it(tmp_path: Path) -> None:
    host = Host(tmp_path, str(tmp_path / "farm.sqlite3"))
    boards = _boards(host.store)
    with few_open_files(), api(host, 1) as service, Injector(host.store, "jobs") as injector:
        address, port = service.address
        crew = Crew(address, port, boards, "", median_s=0.0, ramp_s=0.0)
        planned = injector.plan([board for board, _ in boards[:: BOARDS // JOBS]], JOBS)
        with serving(crew, 1, host.folder, host.environment, "crew") as crews:
            _wait_for_boards(service.url)
            injected = injector.all_at_once(planned, 1)
            injector.wait_until_ended(WITHIN_S)
            _wait_for_boards(service.url)
        found = account(injected, injector.endings(), crews.seen)
    assert found.measured == found.accepted == JOBS
    assert found.lost == found.duplicated == ()
    assert len(pick_ups_ms(injected, crews.seen)) == JOBS
    # Nobody was turned away.
    assert crews.seen.errors == {}
    assert not crews.seen.faults
