"""What an agent does with jobs, lost networks, signals and a second agent."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.agent.fake_server import CODE, DEVICE, TOKEN, FakeServer, Fault, problem
from tests.unit.agent.jobs import payload
from tests.unit.agent.running import RunningAgent, descendants, running
from worker.agent.failures import AgentExit
from worker.agent.hooks import RebootHook
from worker.agent.waiting import Waiter


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


def pending(state: Path) -> list[Path]:
    return sorted((state / "journal").glob("*.result.json"))


def test_enrols_once_keeps_the_token_secret_and_measures(
    server: FakeServer, tmp_path: Path
) -> None:
    job = server.add_job(payload(server))
    enrol = ("--enrol", CODE)
    with RunningAgent(server, tmp_path / "s", "--once", identity=enrol) as agent:
        assert agent.exit_code() == AgentExit.OK
    identity = tmp_path / "s/identity.json"
    assert json.loads(identity.read_text())["device"] == DEVICE
    assert stat.S_IMODE(identity.stat().st_mode) == 0o600
    (result,) = job.results
    assert result["outcome"]["kind"] == "timed"
    assert result["outcome"]["trials_ns"]
    assert result["facts"]["device.kind"] == "null"
    assert result["facts"]["profile"]["max_work_group_size"]
    assert f"job {job.id}" in result["agent_log"]
    assert not pending(tmp_path / "s")
    # The code is used, and is not needed again.
    server.add_job(payload(server))
    with RunningAgent(server, tmp_path / "s", "--once", identity=enrol) as agent:
        assert agent.exit_code() == AgentExit.OK
    assert server.paths().count("/v1/enrol") == 1
    for _, _, _, body in server.calls:
        assert TOKEN not in json.dumps(body)


def test_used_code_and_refused_token_end_the_agent(server: FakeServer, tmp_path: Path) -> None:
    server.codes.clear()
    with RunningAgent(server, tmp_path / "a", identity=("--enrol", CODE)) as agent:
        assert agent.exit_code() == AgentExit.TOKEN_REFUSED
    other = ("--token", "nm_other.x", "--id", DEVICE)
    with RunningAgent(server, tmp_path / "b", identity=other) as agent:
        assert agent.exit_code() == AgentExit.TOKEN_REFUSED
    with RunningAgent(server, tmp_path / "c", identity=()) as agent:
        assert agent.exit_code() == AgentExit.BAD_OPTIONS


def test_once_without_a_job_says_so(server: FakeServer, tmp_path: Path) -> None:
    with RunningAgent(server, tmp_path / "s", "--once", "--wait", "0") as agent:
        assert agent.exit_code() == AgentExit.NO_JOB


def test_token_with_its_device_comes_from_a_file(server: FakeServer, tmp_path: Path) -> None:
    server.add_job(payload(server))
    (tmp_path / "token").write_text(f"{DEVICE} {TOKEN}\n")
    given = ("--token-file", str(tmp_path / "token"))
    with RunningAgent(server, tmp_path / "s", "--once", identity=given) as agent:
        assert agent.exit_code() == AgentExit.OK


def test_second_agent_in_the_same_folder_is_refused(server: FakeServer, tmp_path: Path) -> None:
    with RunningAgent(server, tmp_path / "s") as first:
        first.wait_for("started")
        with RunningAgent(server, tmp_path / "s") as second:
            assert second.exit_code() == AgentExit.STATE_FOLDER
        assert f"process {first.pid}" in second.events[-1]["text"]


def test_every_status_that_is_not_final_is_tried_again(server: FakeServer, tmp_path: Path) -> None:
    job = server.add_job(payload(server))
    nonsense = b'{"job": "../../etc", "attempt": 1}'
    server.faults += [
        Fault("/lease", 302, {"Location": "http://127.0.0.1:1/"}),
        Fault("/lease", 200, body=b"<html>"), Fault("/lease", 200, body=nonsense),
        Fault("/artifacts/", 503), Fault("/artifacts/", 200, body=b"other bytes"),
        Fault("/result", None), Fault("/result", 429, {"Retry-After": "0.2"}),
    ]  # fmt: skip
    with RunningAgent(server, tmp_path / "s", "--max-jobs", "1") as agent:
        assert agent.exit_code(120) == AgentExit.OK
    assert not server.faults
    assert len(job.results) == 1
    assert job.attempt == 1


def test_no_job_is_taken_beyond_the_last_one_while_its_result_waits(
    server: FakeServer, tmp_path: Path
) -> None:
    last, beyond = server.add_job(payload(server)), server.add_job(payload(server))
    server.faults.append(Fault("/result", 500))
    with RunningAgent(server, tmp_path / "s", "--max-jobs", "1") as agent:
        assert agent.exit_code() == AgentExit.OK
    assert len(last.results) == 1
    assert not beyond.attempt
    assert sum("/lease" in path for path in server.paths()) == 1


def test_lost_heartbeats_are_made_up_for(server: FakeServer, tmp_path: Path) -> None:
    server.faults += [Fault("/heartbeat", 502), Fault("/heartbeat", None)]
    job = server.add_job(payload(server))
    job.payload["candidate"] = "short"
    with RunningAgent(server, tmp_path / "s", "--once", executor="obedient") as agent:
        assert agent.exit_code() == AgentExit.OK
    assert job.beats
    assert len(job.results) == 1


def test_server_that_asks_for_time_gets_it(server: FakeServer, tmp_path: Path) -> None:
    server.faults.append(Fault("/lease", 503, {"Retry-After": "2"}))
    server.add_job(payload(server))
    with RunningAgent(server, tmp_path / "s", "--once") as agent:
        assert agent.exit_code() == AgentExit.OK
    first, second = [at for at, _, path, _ in server.calls if "/lease" in path]
    assert second - first >= 2


def test_unreachable_server_ends_once_and_the_result_waits(
    server: FakeServer, tmp_path: Path
) -> None:
    job = server.add_job(payload(server))
    server.faults.append(Fault("/result", 500, times=1000))
    with RunningAgent(server, tmp_path / "s", "--once") as agent:
        assert agent.exit_code() == AgentExit.SERVER
    assert not job.results
    assert len(pending(tmp_path / "s")) == 1
    server.faults.clear()
    with RunningAgent(server, tmp_path / "s", "--once", "--wait", "0") as agent:
        agent.wait_for("delivered", job=job.id)
    assert len(job.results) == 1


def test_result_that_nobody_takes_is_dropped_and_noted(server: FakeServer, tmp_path: Path) -> None:
    stale = json.dumps(problem("stale-lease")).encode()
    server.add_job(payload(server))
    server.add_job(payload(server))
    server.faults += [Fault("/job_0/result", 409, body=stale), Fault("/job_1/result", 404)]
    with RunningAgent(server, tmp_path / "s", "--max-jobs", "2") as agent:
        assert agent.exit_code() == AgentExit.OK
    assert not pending(tmp_path / "s")
    notes = (tmp_path / "s/journal/dropped.jsonl").read_text().splitlines()
    assert [json.loads(note)["job"] for note in notes] == ["job_0", "job_1"]
    assert "stale-lease" in notes[0]


@pytest.mark.parametrize("executor", ["obedient", "deaf"])
def test_cancelled_job_is_dropped_and_the_next_one_runs(
    server: FakeServer, tmp_path: Path, executor: str
) -> None:
    server.lease_s = 0.6
    first, second = server.add_job(payload(server)), server.add_job(payload(server))
    first.payload["candidate"] = "endless"
    with RunningAgent(server, tmp_path / "s", executor=executor) as agent:
        agent.wait_for("stage", job=first.id)
        first.cancel = True
        agent.wait_for("given-up", job=first.id)
        agent.wait_for("delivered", job=second.id)
    assert not first.results
    (released,) = first.released
    assert "cancelled by the server" in released["reason"]
    assert len(second.results) == 1


def test_executor_that_segfaults_is_tried_three_times_and_others_go_on(
    server: FakeServer, tmp_path: Path
) -> None:
    poison, other = server.add_job(payload(server)), server.add_job(payload(server))
    poison.payload["candidate"] = "poison"
    with RunningAgent(server, tmp_path / "s", "--max-jobs", "2", executor="obedient") as agent:
        assert agent.exit_code() == AgentExit.OK
    assert poison.attempt == 1
    (result,) = poison.results
    assert result["outcome"]["kind"] == "crash"
    message = result["outcome"]["detail"]["message"]
    assert message.count("SIGSEGV") == 3
    assert "a kernel wrote over me" in message
    assert other.results[0]["outcome"]["kind"] == "timed"


def test_hung_executor_that_blocks_signals_ends_at_the_deadline_with_its_children(
    server: FakeServer, tmp_path: Path
) -> None:
    server.deadline_s = 3.0
    hung, other = server.add_job(payload(server)), server.add_job(payload(server))
    hung.payload["candidate"] = "endless"
    with RunningAgent(server, tmp_path / "s", executor="deaf") as agent:
        agent.wait_for("stage", job=hung.id)
        below = descendants(agent.pid)
        assert len(below) == 2, "the executor and its child in a session of its own"
        agent.wait_for("delivered", job=other.id)
        assert not set(below) & set(descendants(agent.pid))
        for pid in below:
            assert not running(pid)
    assert hung.results[0]["outcome"]["kind"] == "timeout"
    assert 1 <= hung.results[0]["outcome"]["detail"]["after_s"] < 30
    # The lease was kept alive all the while, beside a process that answers nothing.
    assert hung.beats


def test_quarantine_is_reported_with_its_reason_and_left_after_a_good_probe(
    server: FakeServer, tmp_path: Path
) -> None:
    reboot = tmp_path / "rebooted"
    options = ("--reprobe", "0.2", "--reboot-command", f"touch {reboot}")
    job = server.add_job(payload(server))
    job.payload["candidate"] = "breaks"
    with RunningAgent(server, tmp_path / "s", *options, executor="obedient") as agent:
        server.wait_for(lambda: len(server.health) == 1)
        assert server.health[0]["state"] == "quarantined"
        assert "golden kernel" in server.health[0]["reason"]
        assert not job.results, "the device is to blame, not the candidate"
        server.wait_for(lambda: len(server.health) == 2)
        assert server.health[1]["state"] == "healthy"
        agent.wait_for("healthy")
        second = server.add_job(payload(server))
        agent.wait_for("delivered", job=second.id)
    assert reboot.exists()


def test_a_board_that_cannot_keep_results_gives_its_job_back_and_takes_no_other(
    server: FakeServer, tmp_path: Path
) -> None:
    first = server.add_job(payload(server))
    first.payload["candidate"] = "short"
    journal = tmp_path / "s/journal"
    options = ("--reprobe", "0.2")
    with RunningAgent(server, tmp_path / "s", *options, executor="obedient") as agent:
        agent.wait_for("stage", job=first.id)
        shutil.rmtree(journal)
        agent.wait_for("disk", job=first.id)
        second = server.add_job(payload(server))
        server.wait_for(lambda: len(server.health) >= 2)
        assert server.health[0]["state"] == "quarantined"
        assert "No such file" in server.health[0]["reason"]
        assert second.attempt == 0, "no attempt is spent on a disk that is known to be full"
        journal.mkdir()
        agent.wait_for("delivered", job=second.id)
    (released,) = first.released
    assert "the board's disk: " in released["reason"] and not first.results
    assert server.health[-1]["state"] == "healthy"
    assert not pending(tmp_path / "s")


def test_a_board_without_room_for_artifacts_takes_no_job(
    server: FakeServer, tmp_path: Path
) -> None:
    first = server.add_job(payload(server))
    with RunningAgent(server, tmp_path / "s", "--reprobe", "0.2") as agent:
        agent.wait_for("delivered", job=first.id)
        (tmp_path / "s/artifacts").rename(tmp_path / "elsewhere")
        agent.wait_until(lambda: server.paths()[-1].partition("?")[0].endswith("/lease"))
        # The poll under way may still bring one.
        server.add_job(payload(server)).payload["workload"]["inputs"]["a"]["artifact"] = "0" * 64
        agent.wait_for("disk")
        second = server.add_job(payload(server))
        server.wait_for(lambda: len(server.health) >= 2)
        assert second.attempt == 0
        (tmp_path / "elsewhere").rename(tmp_path / "s/artifacts")
        agent.wait_for("delivered", job=second.id)


def test_reboots_are_counted_through_restarts(tmp_path: Path) -> None:
    with Waiter(lambda: None) as waiter:
        said = [RebootHook("true", tmp_path, waiter).run() for _ in range(5)]
    assert said[:3] == ["hook 'true' ended with 0"] * 3
    assert all(text.startswith("no reboot") for text in said[3:])


def test_device_that_is_not_there_ends_the_agent(server: FakeServer, tmp_path: Path) -> None:
    with RunningAgent(server, tmp_path / "s", executor="absent") as agent:
        assert agent.exit_code() == AgentExit.DEVICE
    assert "no such device" in agent.events[-1]["text"]


def test_sigterm_lets_the_job_finish_and_a_second_one_does_not(
    server: FakeServer, tmp_path: Path
) -> None:
    job = server.add_job(payload(server))
    job.payload["candidate"] = "short"
    with RunningAgent(server, tmp_path / "s", executor="obedient") as agent:
        agent.wait_for("stage", job=job.id)
        agent.signal(signal.SIGTERM)
        assert agent.exit_code() == AgentExit.OK
    assert len(job.results) == 1
    endless = server.add_job(payload(server))
    endless.payload["candidate"] = "endless"
    with RunningAgent(server, tmp_path / "s", executor="obedient") as agent:
        agent.wait_for("stage", job=endless.id)
        agent.signal(signal.SIGTERM)
        agent.wait_for("stopping")
        agent.signal(signal.SIGTERM)
        assert agent.exit_code() == AgentExit.OK
    assert not endless.results


def test_kill_between_measuring_and_sending_loses_nothing(
    server: FakeServer, tmp_path: Path
) -> None:
    job = server.add_job(payload(server))
    server.faults.append(Fault("/result", 500, times=1000))
    with RunningAgent(server, tmp_path / "s") as agent:
        agent.wait_for("measured")
        agent.wait_until(lambda: pending(tmp_path / "s"))
        agent.kill()
    server.faults.clear()
    # The reboot: another process, the same folder.
    with RunningAgent(server, tmp_path / "s") as agent:
        agent.wait_for("delivered", job=job.id, stored=True)
    assert len(job.results) == 1
    assert not pending(tmp_path / "s")


def test_frozen_agent_finds_its_lease_taken_and_one_result_counts(
    server: FakeServer, tmp_path: Path
) -> None:
    server.lease_s = 0.5
    job = server.add_job(payload(server))
    job.payload["candidate"] = "endless"
    with RunningAgent(server, tmp_path / "s", executor="obedient") as frozen:
        frozen.wait_for("stage", job=job.id)
        server.wait_for(lambda: job.beats)
        frozen.signal(signal.SIGSTOP)
        time.sleep(0.1)  # a beat under way
        with server.lock:
            job.payload["candidate"] = "quick"
        server.requeue(job)
        with RunningAgent(server, tmp_path / "other", executor="obedient") as other:
            other.wait_for("delivered", job=job.id)
        frozen.signal(signal.SIGCONT)
        assert "409" in frozen.wait_for("given-up", job=job.id)["text"]
    assert len(job.results) == 1
    assert job.results[0]["attempt"] == job.attempt == 2


def test_watchdog_is_fed_and_systemd_is_told(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(tmp_path / "notify"))
        channel.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "400000")
        job = server.add_job(payload(server))
        job.payload["candidate"] = "endless"
        with RunningAgent(server, tmp_path / "s", executor="obedient") as agent:
            agent.wait_for("stage", job=job.id)
            while heard.count(b"WATCHDOG=1") < 5:
                heard.append(channel.recv(1000))
    assert b"READY=1" in heard
    assert any(text.startswith(b"STATUS=job") for text in heard)


def test_sigterm_while_waiting_ends_at_once(server: FakeServer, tmp_path: Path) -> None:
    with RunningAgent(server, tmp_path / "s") as agent:
        agent.wait_for("started")
        server.wait_for(lambda: any("/lease" in path for path in server.paths()))
        started = time.monotonic()
        agent.signal(signal.SIGTERM)
        assert agent.exit_code() == AgentExit.OK
        assert time.monotonic() - started < 20  # the long poll alone is 50 s
    assert not descendants(agent.pid)


def test_https_with_an_authority_of_the_site(tmp_path: Path) -> None:
    import ssl

    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=nestmap test", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with FakeServer(tls=context) as server:
        job = server.add_job(payload(server))
        trusted = ("--once", "--ca-file", str(certificate))
        with RunningAgent(server, tmp_path / "s", *trusted) as agent:
            assert agent.exit_code() == AgentExit.OK
        assert len(job.results) == 1
        with RunningAgent(server, tmp_path / "t", "--once") as agent:
            assert agent.exit_code() == AgentExit.SERVER
        assert any("not trusted" in event["text"] for event in agent.events)


def test_answers_of_a_newer_server_are_understood(server: FakeServer, tmp_path: Path) -> None:
    server.extra = {"protocol": 2, "hint": {"new": [1, 2]}}
    job = server.add_job(payload(server))
    with RunningAgent(server, tmp_path / "s", "--once") as agent:
        assert agent.exit_code() == AgentExit.OK
    assert len(job.results) == 1


def test_command_line_is_the_agent_itself(server: FakeServer, tmp_path: Path) -> None:
    job = server.add_job(payload(server))
    done = subprocess.run(
        [sys.executable, "-m", "nestmap", "worker", "--url", server.url, "--token", TOKEN, "--id",
         DEVICE, "--device", "null", "--state", str(tmp_path / "s"), "--once"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "timed" in done.stdout
    assert len(job.results) == 1


def test_agent_ends_with_its_parent_and_with_its_folder(server: FakeServer, tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-m', 'worker.agent', *sys.argv[1:]])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    options = ("--url", server.url, "--token", TOKEN, "--id", DEVICE, "--device", "null",
               "--state", str(tmp_path / "s"), "--end-with-parent")  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-c", code, *options], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        server.wait_for(lambda: any("/lease" in path for path in server.paths()))
        parent.kill()
    end = time.monotonic() + 30
    while running(pid) and time.monotonic() < end:
        time.sleep(0.02)
    assert not running(pid)
    with RunningAgent(server, tmp_path / "t", "--wait", "0") as agent:
        agent.wait_for("started")
        shutil.rmtree(tmp_path / "t")
        assert agent.exit_code() == AgentExit.STATE_FOLDER
