"""A board's new work is told of at once by PostgreSQL; where there are no notices, nobody waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from db.farm.farm import Farm
from tests.unit.api.farm_data import new_run, propose
from tests.unit.db.postgres_server import INSTALL, NEEDS


def eventually(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.needs(NEEDS, install=INSTALL)
def test_a_proposal_tells_every_process_that_its_board_has_work(
    new_postgres: Callable[[str], str], migrated_postgres: str
) -> None:
    url = new_postgres(migrated_postgres)
    heard: list[str] = []
    with Farm.open(url) as here, Farm.open(url) as elsewhere:
        notices = here.board_notices(heard.append)
        notices.start()
        try:
            eventually(lambda: notices.listening)
            board = elsewhere.boards.add("board").board.id
            new_run(elsewhere, board)
            assert not heard  # there is nothing to measure yet
            propose(elsewhere, 100, 200)
            eventually(lambda: bool(heard))
        finally:
            notices.close()
        assert set(heard) == {board}
        assert not notices.listening


def test_without_notices_the_queue_is_looked_at_as_before(tmp_path: Path) -> None:
    with Farm.open(tmp_path / "farm.sqlite3") as farm:
        notices = farm.board_notices(lambda board_id: None)
        notices.start()
        assert not notices.listening
        notices.close()
