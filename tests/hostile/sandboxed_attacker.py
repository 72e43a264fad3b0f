"""What a kernel in the wrong hands would do from inside the sandbox: run by test_sandbox.py.

Takes the place of the measuring child. What an attack got is sent as a line; nothing if it failed.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import resource
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from worker.measuring.sandbox import VARIABLE, Folders, Sandbox, enter, restrain
from worker.measuring.wire import receive, send

_MOST_FORKS = 600


def _forks() -> str:
    children: list[int] = []
    # They end with this pipe: to send signals to them may be refused.
    wait, go = os.pipe()
    try:
        while len(children) < _MOST_FORKS:
            child = os.fork()
            if not child:
                os.close(go)
                os.read(wait, 1)
                os._exit(0)
            children.append(child)
    except OSError:
        return ""
    finally:
        os.close(go)
        for child in children:
            os.waitpid(child, 0)
    return f"{len(children)} processes"


def _memory() -> str:
    mmap.mmap(-1, 3 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return "3 GB"


def _connect(family: int, address: object) -> str:
    with socket.socket(family) as caller:
        caller.settimeout(2)
        caller.connect(address)  # type: ignore[arg-type]
    return "connected"


def _written(folder: str) -> str:
    path = Path(folder) / "left-behind"
    path.write_text("x")
    return str(path)


def _writable(folder: str) -> str:
    """Whether there could be a new file; it has no name, so that none is left behind."""
    os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600))
    return folder


def _syscall(number: int, *arguments: int) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, *arguments) == -1:
        raise OSError(ctypes.get_errno(), "refused")
    return "done"


def _stay() -> str:
    """A process that left the session; it lives as long as it is let."""
    if not os.fork():
        os.setsid()
        if not os.fork():
            time.sleep(300)
        os._exit(0)
    return "forked"


def _fill(how: str) -> None:
    """Memory that no limit of one process counts; nobody says no."""
    size = 400 << 20
    if how == "shared":
        for _ in range(2):
            kept = mmap.mmap(-1, size)
            kept[:] = bytes(size)
            _KEPT.append(kept)
    elif how == "file":
        for _ in range(2):
            descriptor = os.memfd_create("x")
            for _ in range(400):
                os.write(descriptor, bytes(1 << 20))
    elif how == "disk":
        for number in range(2200):
            Path(os.environ["TMPDIR"], str(number)).write_bytes(bytes(1 << 20))
    elif how == "many files":
        for number in range(30_000):
            Path(os.environ["TMPDIR"], str(number)).touch()
    elif how == "nameless":
        for _ in range(22):
            descriptor, name = tempfile.mkstemp()
            os.unlink(name)
            os.write(descriptor, bytes(100 << 20))
    elif how == "processes":
        for _ in range(3):
            if not os.fork():
                _KEPT.append(bytearray(b"x") * (250 << 20))
                time.sleep(300)
    time.sleep(300)


_KEPT: list[object] = []


def _killed(pid: int) -> str:
    os.kill(pid, 0)
    return f"reached {pid}"


def attacks(aim: dict[str, str]) -> dict[str, Callable[[], str]]:
    """By name."""
    agent = int(aim["agent"])
    number = {"x86_64": 0, "aarch64": 1}[os.uname().machine]
    return {
        "identity": lambda: Path(aim["identity"]).read_text(),
        "names of the state's files": lambda: str(os.listdir(Path(aim["identity"]).parent)),
        "identity through the parent's root": lambda: Path(
            f"/proc/{os.getppid()}/root{aim['identity']}"
        ).read_text(),
        "the agent's environment": lambda: Path(f"/proc/{agent}/environ").read_text(),
        "the agent's command line": lambda: Path(f"/proc/{agent}/cmdline").read_text(),
        "the agent's memory": lambda: str(Path(f"/proc/{agent}/mem").open("r+b")),
        "signal to the agent": lambda: _killed(agent),
        "shadow": lambda: Path("/etc/shadow").read_text(),
        "write beside the package": lambda: _writable(aim["package"]),
        "write into the state": lambda: _written(str(Path(aim["identity"]).parent)),
        "write into workloads": lambda: _written(aim["workloads"]),
        "write into /var/tmp": lambda: _writable("/var/tmp"),
        "tcp": lambda: _connect(socket.AF_INET, ("127.0.0.1", int(aim["port"]))),
        "unix socket": lambda: _connect(socket.AF_UNIX, aim["socket"]),
        "abstract socket": lambda: _connect(socket.AF_UNIX, "\0" + aim["abstract"]),
        "ptrace": lambda: _syscall((101, 117)[number], 16, agent, 0, 0),
        "user namespace": lambda: _syscall((272, 97)[number], 0x10000000),
        "clone3": lambda: _syscall(435, 0, 0),
        "io_uring": lambda: _syscall(425, 1, 0),
        "clone into namespaces": lambda: _syscall((56, 220)[number], 0x10000000 | 17, 0, 0, 0, 0),
        "forks": _forks,
        "memory": _memory,
    }


def attacks_on_others(agent: int) -> dict[str, Callable[[], str]]:
    """What a namespace of processes and of what they share makes harmless: then they see none."""
    number = {"x86_64": 0, "aarch64": 1}[os.uname().machine]
    new, key = 0o1600, os.getpid()
    return {
        "signal to a thread of the agent": lambda: _syscall((234, 131)[number], agent, agent, 0),
        "signal to the agent as a thread": lambda: _syscall((200, 130)[number], agent, 0),
        "signal to the agent's group": lambda: _killed(-os.getpgid(agent)),
        "limits of the agent": lambda: str(resource.prlimit(agent, resource.RLIMIT_CORE)),
        "shared memory": lambda: _syscall((29, 194)[number], key, 4096, new),
        "queue of messages": lambda: _syscall((68, 186)[number], key, new),
        "semaphores": lambda: _syscall((64, 190)[number], key, 1, new),
    }


def main() -> None:
    """Enter, attack unless it is the end that is looked at, tell, end as told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lifeline", type=int, required=True)
    known, _ = parser.parse_known_args()
    scratch = Path(os.environ["TMPDIR"]).parent
    restrain()
    folders = Folders(scratch.parent / "workloads", scratch)
    aim = json.loads(os.environ["AIM"])
    if aim["within"]:
        enter(Sandbox(kind=aim["within"]), folders, known.lifeline)
    facts = enter(Sandbox.from_text(os.environ[VARIABLE]), folders, known.lifeline)
    got: dict[str, str] = {}
    chosen = {} if aim["end"] else attacks(aim)
    if chosen and facts["sandbox.processes"] != "own":
        chosen |= attacks_on_others(int(aim["agent"]))
        if facts["sandbox.signals"] == "to itself":
            # Where Landlock keeps them back, this says that it worked and did nothing.
            chosen["signal to all"] = lambda: _killed(-1)
    for name, attack in chosen.items():
        try:
            if gain := attack():
                got[name] = gain
        except (OSError, MemoryError, ValueError):
            continue
    workload = (Path(aim["workloads"]) / "0").read_text()
    (scratch / "tmp" / "own").write_text("x")
    send(1, {"facts": facts, "got": got, "workload": workload, "pid": os.getpid()})
    if aim["end"] == "stay":
        _stay()
        send(1, {"stays": True})
        time.sleep(300)
    if aim["end"].startswith("fill "):
        _fill(aim["end"].partition(" ")[2])
    if aim["end"].startswith("start "):
        receive(0)
        if aim["end"] == "start thread":
            threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
        elif not os.fork():
            time.sleep(300)
        send(1, {"started": True})
        time.sleep(300)
    if aim["end"] == "abort":
        os.abort()
    sys.exit(int(aim["end"] or 0))


if __name__ == "__main__":
    main()
