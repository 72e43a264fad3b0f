"""Who gets in: tokens, one-time codes, boards and their states."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import text

from db.farm import boards as boards_module
from db.farm import presence as presence_module
from db.farm.boards import AGENT
from db.farm.errors import AbsentError, CodeGone, ConflictError
from db.farm.farm import Farm
from db.farm.records import Keyset
from db.farm.states import BoardState, EventKind, Scope
from mapper.errors import InputError
from tests.unit.db.farm_values import FACTS, Clock, some_board


def everything_stored(farm: Farm) -> str:
    """All tokens and codes as the database has them."""
    with farm.store._transactions.read() as session:
        rows = [
            *session.execute(text("SELECT * FROM tokens")),
            *session.execute(text("SELECT * FROM enrolments")),
        ]
    return repr(rows)


def test_a_token_is_shown_once_and_stored_as_a_hash(farm: Farm):
    new = farm.tokens.create(Scope.USER, label="laptop")
    secret = new.text.partition(".")[2]
    assert new.text == f"nm_{new.token.id}.{secret}"
    assert len(secret) >= 43  # 256 bits
    assert secret not in everything_stored(farm)
    assert secret not in repr(new)
    found = farm.tokens.verify(new.text)
    assert found is not None
    assert (found.id, found.scope, found.label) == (new.token.id, Scope.USER, "laptop")


def test_a_token_must_be_right_in_every_part(farm: Farm):
    new, other = farm.tokens.create(Scope.USER), farm.tokens.create(Scope.ADMIN)
    secret = new.text.partition(".")[2]
    wrong = [
        "",
        "nm_",
        secret,
        new.text[:-1],
        new.text + "x",
        new.text.replace("nm_", "nn_"),
        f"nm_{other.token.id}.{secret}",
        f"nm_unknown.{secret}",
        f"nm_{new.token.id}.",
        "nm_" + "a" * 10_000,
        "nm_\udc80.\udc80",
        "nm_a\0b.c",
        "nm_é.é",
    ]
    assert [farm.tokens.verify(text) for text in wrong] == [None] * len(wrong)


def test_a_token_ends_with_its_time_or_its_revocation(farm: Farm, clock: Clock):
    short = farm.tokens.create(Scope.USER, lifetime_s=60)
    long = farm.tokens.create(Scope.ADMIN)
    clock.advance(59)
    assert farm.tokens.verify(short.text)
    clock.advance(2)
    assert farm.tokens.verify(short.text) is None
    assert farm.tokens.any_of(Scope.ADMIN)
    assert not farm.tokens.any_of(Scope.USER)
    first = farm.tokens.revoke(long.token.id).revoked_at
    clock.advance(5)
    assert farm.tokens.revoke(long.token.id).revoked_at == first
    assert farm.tokens.verify(long.text) is None
    assert not farm.tokens.any_of(Scope.ADMIN)
    with pytest.raises(AbsentError, match="no such token"):
        farm.tokens.revoke("none")


def test_last_use_is_written_once_a_minute(farm: Farm, clock: Clock):
    new = farm.tokens.create(Scope.USER)
    began = clock()
    uses = []
    for _ in range(5):
        farm.tokens.verify(new.text)
        (token,) = farm.tokens.page()
        assert token.last_used_at is not None
        uses.append((token.last_used_at - began).total_seconds())
        clock.advance(25)
    assert uses == [0, 0, 0, 75, 75]


def test_a_device_token_names_its_device_and_no_other_does(farm: Farm):
    board = some_board(farm)
    token = farm.tokens.create(Scope.DEVICE, board_id=board.id)
    found = farm.tokens.verify(token.text)
    assert found is not None
    assert (found.scope, found.board_id) == (Scope.DEVICE, board.id)
    with pytest.raises(AbsentError, match="no such board"):
        farm.tokens.create(Scope.DEVICE, board_id="dev_none")
    for scope, board_id in ((Scope.DEVICE, None), (Scope.USER, board.id)):
        with pytest.raises(InputError, match="does not go with scope"):
            farm.tokens.create(scope, board_id=board_id)


def test_pages_of_tokens_hold_no_secret(farm: Farm, clock: Clock):
    made = []
    for number in range(5):
        made.append(farm.tokens.create(Scope.USER, label=str(number)).token)
        clock.advance(number % 2)
    first = farm.tokens.page(limit=3)
    rest = farm.tokens.page(limit=3, after=Keyset(first[-1].created_at, first[-1].id))
    assert len(first) == 3
    assert {token.id for token in (*first, *rest)} == {token.id for token in made}
    assert not hasattr(first[0], "hash")


def test_a_code_brings_one_board_in(farm: Farm, clock: Clock):
    new = farm.enrolments.create(principal="me", profile="mali-g72", lifetime_s=600)
    assert new.code.replace("-", "") not in everything_stored(farm).replace("-", "")
    assert new.code not in repr(new)
    typed = new.code.lower().replace("-", " ")
    enrolled = farm.enrolments.redeem(typed, name="hikey", agent_version="0.1.0", facts=FACTS)
    board = enrolled.board
    assert (board.name, board.profile, board.facts) == ("hikey", "mali-g72", FACTS)
    assert board.id.startswith("dev_")
    assert farm.boards.board(board.id) == board == farm.boards.find("hikey")
    token = farm.tokens.verify(enrolled.token.text)
    assert token is not None
    assert token.board_id == board.id
    (event,) = farm.events.of_board(board.id)
    assert event.kind is EventKind.BOARD_ENROLLED
    with pytest.raises(CodeGone, match="unknown, was used or has expired"):
        farm.enrolments.redeem(new.code, name="second", agent_version="", facts={})


def test_a_code_expires_and_an_unknown_one_says_no_more(farm: Farm, clock: Clock):
    new = farm.enrolments.create(lifetime_s=600)
    clock.advance(600)
    for code in (new.code, "00000-00000-00000-00000", "", "\udc80", "x" * 10_000):
        with pytest.raises(CodeGone, match="unknown, was used or has expired"):
            farm.enrolments.redeem(code, name="late", agent_version="", facts={})
    assert farm.boards.page() == ()


def test_a_name_that_is_taken_leaves_the_code_good(farm: Farm):
    some_board(farm, "hikey")
    new = farm.enrolments.create()
    with pytest.raises(ConflictError, match="name of another board"):
        farm.enrolments.redeem(new.code, name="hikey", agent_version="", facts={})
    assert farm.enrolments.redeem(new.code, name="pi", agent_version="", facts={}).board


def test_presence_is_written_every_ten_seconds_or_with_news(farm: Farm, clock: Clock):
    board = some_board(farm)
    assert board.last_seen is None
    began = clock()
    seen = []
    for step in range(5):
        if step == 3:
            farm.boards.seen(board.id, health={"temperature_c": 41}, agent_version="0.2.0")
        farm.boards.seen(board.id, health={"temperature_c": 40 + step})
        last_seen = farm.boards.board(board.id).last_seen
        assert last_seen is not None
        seen.append((last_seen - began).total_seconds())
        clock.advance(6)
    assert seen == [0, 0, 12, 18, 18]
    assert farm.boards.board(board.id).agent_version == "0.2.0"
    assert farm.boards.board(board.id).facts == FACTS
    with pytest.raises(AbsentError, match="no such board"):
        farm.boards.seen("dev_none")


def test_history_of_a_board_is_bounded(farm: Farm, clock: Clock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(boards_module, "HISTORY_KEPT", 4)
    board, other = some_board(farm), some_board(farm, "other")
    farm.boards.seen(other.id, health={"temperature_c": 1})
    for minute in range(10):
        farm.boards.seen(board.id, health={"temperature_c": minute})
        clock.advance(30)
        farm.boards.seen(board.id, health={"temperature_c": 99})  # within the minute
        clock.advance(30)
    history = farm.boards.history(board.id)
    assert [entry.facts["temperature_c"] for entry in history] == [6, 7, 8, 9]
    assert history[0].facts["driver.version"] == "3.0"
    assert farm.boards.history(board.id, after=history[1].id) == history[2:]
    assert len(farm.boards.history(other.id)) == 1


def test_an_agent_lifts_its_own_quarantine_and_no_other(farm: Farm):
    board = some_board(farm)
    farm.boards.quarantine(board.id, "golden kernel is wrong", by=AGENT)
    assert farm.boards.release(board.id, by=AGENT).state is BoardState.ACTIVE
    farm.boards.quarantine(board.id, "smells", by="token1")
    same = farm.boards.quarantine(board.id, "golden", by=AGENT)
    assert (same.reason, same.state_by) == ("smells", "token1")
    with pytest.raises(ConflictError, match="somebody else"):
        farm.boards.release(board.id, by=AGENT)
    assert farm.boards.release(board.id, by="token1").state is BoardState.ACTIVE
    assert farm.boards.release(board.id, by="token1").state is BoardState.ACTIVE
    changes = [e.payload for e in farm.events.of_board(board.id)][1:]
    assert [change["state"] for change in changes] == [
        "quarantined",
        "active",
        "quarantined",
        "active",
    ]


def test_a_disabled_board_is_out_until_it_is_enabled(farm: Farm):
    board = some_board(farm)
    farm.boards.disable(board.id, "burnt", by="admin")
    for step in (
        lambda: farm.boards.quarantine(board.id, "x", by=AGENT),
        lambda: farm.boards.release(board.id, by="admin"),
    ):
        with pytest.raises(ConflictError, match="burnt"):
            step()
    assert farm.boards.counts() == {
        BoardState.ACTIVE: 0,
        BoardState.QUARANTINED: 0,
        BoardState.DISABLED: 1,
    }
    assert farm.boards.enable(board.id, by="admin").state is BoardState.ACTIVE
    assert farm.boards.enable(board.id, by="admin").state is BoardState.ACTIVE


def test_pages_of_boards(farm: Farm, clock: Clock):
    boards = []
    for number in range(5):
        boards.append(some_board(farm, f"board {number}"))
        clock.advance(number % 2)
    farm.boards.quarantine(boards[2].id, "x", by=AGENT)
    first = farm.boards.page(limit=2)
    second = farm.boards.page(limit=9, after=Keyset(first[-1].created_at, first[-1].id))
    assert {board.id for board in (*first, *second)} == {board.id for board in boards}
    assert [b.id for b in farm.boards.page(state=BoardState.QUARANTINED)] == [boards[2].id]
    assert farm.boards.find("nobody") is None


def test_calls_that_say_nothing_new_are_gathered_and_written_together(farm: Farm, clock: Clock):
    boards = [some_board(farm), some_board(farm, "other")]
    for board in boards:
        # A first call and other facts are written at once: somebody may wait for them.
        farm.boards.seen(board.id, facts={"driver": "1"}, later=farm.presence)
        assert farm.boards.board(board.id).facts == {"driver": "1"}
    assert farm.presence.write() == 0
    clock.advance(61)
    for board in boards:
        farm.boards.seen(board.id, health={"temperature_c": 40}, later=farm.presence)
    assert {farm.boards.board(board.id).last_seen for board in boards} == {
        clock() - timedelta(seconds=61)
    }
    assert farm.presence.write() == 2
    for board in boards:
        found = farm.boards.board(board.id)
        assert (found.last_seen, found.health) == (clock(), {"temperature_c": 40})
        assert farm.boards.history(board.id)[-1].facts == {"driver": "1", "temperature_c": 40}
    assert farm.presence.write() == 0


def test_uses_of_tokens_are_gathered_and_written_together(farm: Farm, clock: Clock):
    token = farm.tokens.create(Scope.USER)
    assert farm.tokens.verify(token.text, farm.presence)
    assert farm.tokens.page()[0].last_used_at is None
    farm.presence.write()
    assert farm.tokens.page()[0].last_used_at == clock()
    clock.advance(30)
    assert farm.tokens.verify(token.text, farm.presence)
    assert farm.presence.write() == 0


def test_gathered_calls_add_to_the_history_once_a_minute_and_keep_it_bounded(
    farm: Farm, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(presence_module, "HISTORY_KEPT", 3)
    board = some_board(farm)
    farm.boards.seen(board.id, health={"n": 0})
    for number in range(1, 13):
        clock.advance(30)
        farm.boards.seen(board.id, health={"n": number}, later=farm.presence)
        farm.presence.write()
    assert [entry.facts["n"] for entry in farm.boards.history(board.id)] == [7, 9, 11]
