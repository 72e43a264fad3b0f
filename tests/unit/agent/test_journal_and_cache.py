"""What stays on a board's disk: results whole or not at all, artifacts verified and bounded."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from worker.agent.artifact_cache import ArtifactCache
from worker.agent.bounded import NotAcceptable, read_object
from worker.agent.failures import AgentFailure, TryAgain
from worker.agent.http_calls import Address
from worker.agent.journal import MAX_PENDING, Journal
from worker.agent.lease import Lease
from worker.agent.patience import MOST_S, OPEN_AFTER, Patience


def test_a_folder_that_is_removed_while_it_is_read_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent then finds out by itself that it is gone, and says so."""
    journal = Journal(tmp_path / "gone")
    # It was there when the search began.
    monkeypatch.setattr(Path, "is_dir", lambda path: True)
    assert len(journal) == 0
    assert journal.oldest() is None


def test_results_come_back_in_order_and_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for number in range(3):
        journal.add(f"job_{number}", 1, {"attempt": 1, "outcome": {"kind": "timed"}})
    journal = Journal(tmp_path)  # as after a reboot
    for number in range(3):
        pending = journal.oldest()
        assert pending is not None
        assert pending.job == f"job_{number}"
        journal.sent(pending)
    assert journal.oldest() is None
    assert len(journal) == 0


def test_spoilt_result_is_set_aside_and_takes_no_other_along(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    spoilt = journal.add("job_a", 1, {})
    journal.add("job_b", 1, {})
    spoilt.path.write_bytes(b'{"job": "job_a", "att')
    (tmp_path / ".x.partial").write_bytes(b"cut off")
    journal = Journal(tmp_path)
    pending = journal.oldest()
    assert pending is not None and pending.job == "job_b"
    assert len(journal) == 1
    assert "unreadable" in (tmp_path / "dropped.jsonl").read_text()
    assert not list(tmp_path.glob(".*.partial"))


def test_journal_says_when_it_is_full(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for number in range(MAX_PENDING - 1):
        (tmp_path / f"{number:020d}-x.result.json").touch()
    assert not journal.is_full
    (tmp_path / f"{MAX_PENDING:020d}-x.result.json").touch()
    assert journal.is_full


def serving(**data: bytes) -> tuple[dict[str, str], list[str], Callable[..., None]]:
    """Hashes by name, what was fetched, and the fetching function."""
    names = {name: hashlib.sha256(content).hexdigest() for name, content in data.items()}
    by_hash = {names[name]: content for name, content in data.items()}
    fetched: list[str] = []

    def fetch(digest: str, sink: Callable[[bytes], object], most_bytes: int) -> None:
        assert most_bytes > 0
        fetched.append(digest)
        sink(by_hash[digest])

    return names, fetched, fetch


def test_artifact_is_fetched_once_even_by_a_later_agent(tmp_path: Path) -> None:
    names, fetched, fetch = serving(a=b"data")
    for cache in (ArtifactCache(tmp_path, 1000), ArtifactCache(tmp_path, 1000)):
        for _ in range(2):
            assert cache.take(names["a"], fetch).read_bytes() == b"data"
    assert fetched == [names["a"]]


def test_bytes_with_another_hash_never_become_an_artifact(tmp_path: Path) -> None:
    def fetch(digest: str, sink: Callable[[bytes], object], most_bytes: int) -> None:
        sink(b"something else")

    cache = ArtifactCache(tmp_path, 1000)
    with pytest.raises(TryAgain, match="other bytes"):
        cache.take("0" * 64, fetch)
    assert list(tmp_path.iterdir()) == []


def test_artifact_that_the_disk_changed_is_fetched_again(tmp_path: Path) -> None:
    names, fetched, fetch = serving(a=b"data")
    path = ArtifactCache(tmp_path, 1000).take(names["a"], fetch)
    path.chmod(0o600)
    path.write_bytes(b"dat\0")
    assert ArtifactCache(tmp_path, 1000).take(names["a"], fetch).read_bytes() == b"data"
    assert len(fetched) == 2


def test_least_recently_used_artifacts_make_room(tmp_path: Path) -> None:
    names, _, fetch = serving(a=b"a" * 400, b=b"b" * 400, c=b"c" * 400, d=b"d" * 900)
    cache = ArtifactCache(tmp_path, 1000)
    for age, name in enumerate("ab"):
        os.utime(cache.take(names[name], fetch), (age, age))
    cache.take(names["a"], fetch)  # b is now the older one
    cache.take(names["c"], fetch)
    here = {name for name, digest in names.items() if cache.path_of(digest).exists()}
    assert here == {"a", "c"}
    # What the job under way needs stays, even beyond the bound.
    cache.take(names["d"], fetch, in_use=[names["c"]])
    here = {name for name, digest in names.items() if cache.path_of(digest).exists()}
    assert here == {"c", "d"}


def test_a_disk_without_room_is_named_and_nothing_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, fetched, fetch = serving(a=b"data")
    small = SimpleNamespace(f_frsize=4096, f_bavail=4096)
    monkeypatch.setattr("worker.agent.artifact_cache.os.statvfs", lambda _: small)
    with pytest.raises(OSError, match="fewer than 64 MiB are free"):
        ArtifactCache(tmp_path, 1000).take(names["a"], fetch)
    assert not fetched and not list(tmp_path.iterdir())


def test_waits_grow_stay_bounded_and_add_what_the_server_asks() -> None:
    now = [0.0]
    patience = Patience(clock=lambda: now[0], chance=lambda: 1.0)
    waits = [patience.failed() for _ in range(12)]
    assert waits == sorted(waits)
    assert waits[0] < 1 and waits[-1] == MOST_S
    assert patience.is_open
    assert patience.failed(retry_after_s=100) == MOST_S + 100
    assert patience.wait_s() == MOST_S + 100
    patience.succeeded()
    assert patience.wait_s() == 0 and not patience.is_open
    # Never the same for all boards.
    first = [Patience().failed() for _ in range(20)]
    assert len(set(first)) > 15
    assert OPEN_AFTER > 1


LEASE = {
    "job": "job_1", "attempt": 1, "lease_token": "t", "lease_s": 10, "deadline_s": 60.5,
    "payload": {"plan": {"source": {"artifact": "a" * 64}}, "list": [{"artifact": "b" * 64}]},
}  # fmt: skip


def test_lease_is_read_within_bounds() -> None:
    lease = Lease.of({**LEASE, "unknown": 1})
    assert set(lease.artifacts()) == {"a" * 64, "b" * 64}
    assert Lease.of({**LEASE, "deadline_s": 1e12}).deadline_s <= 6 * 3600
    for name, bad in (
        ("job", "../x"), ("job", ""), ("job", 5), ("attempt", True), ("attempt", -1),
        ("lease_token", ""), ("lease_s", "10"), ("payload", []), ("deadline_s", None),
    ):  # fmt: skip
        with pytest.raises(NotAcceptable, match=name):
            Lease.of({**LEASE, name: bad})
    escaping = Lease.of({**LEASE, "payload": {"artifact": "../../etc/passwd"}})
    with pytest.raises(NotAcceptable, match="SHA-256"):
        escaping.artifacts()


@pytest.mark.parametrize(
    "text",
    [b"[1]", b"{", b'{"a": NaN}', b'{"a": Infinity}', b"\xff", b'{"a":' * 100_000,
     b'{"a":' * 70 + b"1" + b"}" * 70, b'{"a": [' + b"1," * 200_000 + b"1]}"],
)  # fmt: skip
def test_json_of_others_is_bounded(text: bytes) -> None:
    with pytest.raises(NotAcceptable):
        read_object(text)


@pytest.mark.parametrize("name", ["lease_s", "deadline_s"])
@pytest.mark.parametrize("time", ["1" + "0" * 400, "-1" + "0" * 400, "1e999"])
def test_times_beyond_all_numbers_are_refused_by_name(name: str, time: str) -> None:
    answer = json.dumps({**LEASE, name: "here"}).replace('"here"', time)
    with pytest.raises(NotAcceptable, match=name):
        Lease.of(read_object(answer.encode()))


@pytest.mark.parametrize(
    "url", ["ftp://x", "x", "http://", "http://u:p@x", "http://x?a=1", "http://x:99999", "http://["]
)
def test_urls_that_are_none_are_refused(url: str) -> None:
    with pytest.raises(AgentFailure, match="--url"):
        Address.of(url)
