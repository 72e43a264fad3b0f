"""The sandbox of a measuring child whose kernels come from somebody else's server.

A kernel for a processor is machine code in the child's own process, whatever its text looks like.
So the child keeps what it needs to compile and to run, and gives up the rest before it loads a
driver. The strongest kind that the system allows is taken:

``namespaces``
    Mounts, network, processes and, where the agent is not root, users of its own: a root folder of
    its own (:mod:`worker.measuring.own_root`), no network, nobody else's processes, and a first
    process whose end ends all others. Where the agent is root the child is a user of its own, since
    the system counts a user's processes together, those of other sandboxes too.
``landlock``
    Files are given up one by one (:mod:`worker.measuring.landlock`).
``limits``
    Neither; what follows holds in all three.

A filter refuses system calls that kernels never need, sockets among them; memory, processes, open
files, sizes of files, and core dumps are limited (user_namespaces(7), seccomp(2), landlock(7)).
The parent adds up what the processes have together (:mod:`worker.measuring.process_watch`).
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import resource
import select
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from worker.measuring import landlock
from worker.measuring.own_root import enter_own_root
from worker.measuring.system_calls import (
    NEW_NAMESPACE,
    die_with_parent,
    drop_capabilities,
    filter_calls,
    gain_nothing,
    hide_memory,
    unshare,
)
from worker.measuring.visible_paths import VisiblePaths, visible_paths

VARIABLE = "NESTMAP_SANDBOX"
#: ``auto`` takes the first of the others that works.
KINDS = ("auto", "namespaces", "landlock", "limits")
#: Folders of the child's own that it may write to.
SCRATCH_FOLDERS = ("cache", "tmp")
_OPEN_FILES = 1024
#: What the child may have on disk in all, and in how many files and folders.
MOST_WRITTEN_BYTES = 2 << 30
MOST_WRITTEN_FILES = 20_000
#: A kernel's printf must not fill the disk; more than any driver writes into its cache.
_LARGEST_FILE_BYTES = 1 << 30
#: Beside a driver's threads, one or two for a core: linkers, compilers.
_PROCESSES = 64
_MEMORY_SHARE = 0.75
#: The first of the users that Linux distributions leave unused (systemd's table of ids); a sandbox
#: takes the one that has its launcher's number from here on.
_FIRST_USER = 0x70000000
_ENTERED = b"E"
_NOT_ENTERED = 90


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Niceness 0 to 19; bytes that a process may allocate (None: three quarters of the machine's);
    whether there is a network; the kind (:data:`KINDS`); what else of the machine can be read."""

    nice: int = 5
    memory_bytes: int | None = None
    network: bool = False
    kind: str = "auto"
    paths: tuple[str, ...] = ()

    @property
    def most_bytes(self) -> int:
        """Bytes that a process may allocate, and that the child's processes may have together."""
        if self.memory_bytes is not None:
            return self.memory_bytes
        return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * _MEMORY_SHARE)

    def to_text(self) -> str:
        """For the environment; :meth:`from_text` reads it back."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_text(text: str) -> Sandbox:
        """Read what :meth:`to_text` wrote."""
        fields = json.loads(text)
        return Sandbox(**{**fields, "paths": tuple(fields["paths"])})


@dataclass(frozen=True, slots=True)
class Folders:
    """``shared`` holds workloads, to be read; ``scratch`` is the child's own, with
    :data:`SCRATCH_FOLDERS` in it. Neither lies in the other."""

    shared: Path
    scratch: Path


def lacking(facts: Mapping[str, object]) -> tuple[str, ...]:
    """What does not hold of a sandbox, by the facts that its child gives, in words."""
    wanted = {
        "sandbox.files": ("open", "other files of this machine can be read"),
        "sandbox.network": ("shared", "there is a network"),
        "sandbox.calls": ("free", "system calls are not filtered"),
        "sandbox.processes": ("free", "a process that leaves its group outlives the child"),
        "sandbox.signals": ("free", "signals reach other processes of the user"),
        "sandbox.user": ("root", "the child is root"),
    }
    return tuple(words for fact, (bad, words) in wanted.items() if facts.get(fact, bad) == bad)


def enter(sandbox: Sandbox, folders: Folders, lifeline: int) -> dict[str, str]:
    """Go on inside the sandbox, and say by facts what holds there.

    To be called while this process has one thread. With namespaces it goes on in a grandchild,
    and this process stays behind until that ends, to end as it did; it ends all when the other end
    of ``lifeline`` is closed.
    """
    with contextlib.suppress(OSError):
        os.nice(sandbox.nice)
    visible = visible_paths(sandbox.paths)
    if sandbox.kind in ("auto", "namespaces"):
        facts = _in_namespaces(sandbox, folders, visible, lifeline)
        if facts is not None:
            return facts
    locked = sandbox.kind != "limits" and _attempt(
        "landlock", lambda: _lock_files(sandbox, folders, visible)
    )
    facts = {
        "sandbox.files": "landlock" if locked else "open",
        "sandbox.user": "the agent's" if os.getuid() else "root",
    }
    scoped = locked and landlock.scopes_signals()
    return facts | _limited(sandbox, _threads_of(os.getuid()), own_processes=False, scoped=scoped)


def _lock_files(sandbox: Sandbox, folders: Folders, visible: VisiblePaths) -> None:
    # hwloc, by which PoCL learns of processor and memory, opens the root folder to look from there.
    # To allow it that one would be to allow the names of all files.
    root = folders.scratch / "root"
    root.mkdir()
    for name in ("proc", "sys"):
        (root / name).symlink_to(f"/{name}")
    os.environ |= {"HWLOC_FSROOT": str(root), "HWLOC_THISSYSTEM": "1"}
    gain_nothing()
    landlock.give_up_files(
        (*visible.read, *visible.processes, folders.shared),
        visible.devices,
        [folders.scratch],
        network=sandbox.network,
    )


def restrain() -> None:
    """Limit what a bad kernel does to the machine by mistake; no sandbox."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit(resource.RLIMIT_FSIZE, _LARGEST_FILE_BYTES)
    with contextlib.suppress(OSError):
        # When memory runs out the kernel shall take this process, not the service.
        Path("/proc/self/oom_score_adj").write_text("1000")


def _limited(
    sandbox: Sandbox, threads: int, *, own_processes: bool, scoped: bool
) -> dict[str, str]:
    """Put on what every kind has; what of it holds. The user has so many ``threads`` before.

    ``scoped``: Landlock keeps signals from other processes.
    """
    memory = sandbox.most_bytes
    # What is allocated, not what is reserved: drivers of GPUs reserve more than there is.
    _limit(resource.RLIMIT_DATA, memory)
    _limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
    _limit(resource.RLIMIT_NPROC, threads + _PROCESSES + 4 * (os.cpu_count() or 1))
    _attempt("no_new_privs", gain_nothing)
    _attempt("capset", drop_capabilities)
    filtered = _attempt(
        "seccomp", lambda: filter_calls(own_processes=own_processes, may_signal=scoped)
    )
    signals = "scoped" if scoped else "to itself" if filtered else "free"
    return {
        "sandbox.network": "shared" if sandbox.network or not filtered else "none",
        "sandbox.calls": "filtered" if filtered else "free",
        "sandbox.processes": "own" if own_processes else "one group" if filtered else "free",
        "sandbox.signals": "own" if own_processes else signals,
        "sandbox.memory": f"{memory >> 20} MB",
        "sandbox.nice": str(os.nice(0)),
    }


def _limit(which: int, most: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(which, (most, most))


def _threads_of(uid: int) -> int:
    """How many threads a user has now: the limit counts them all."""
    own, found = str(uid), 0
    for file in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            lines = file.read_text(errors="replace").splitlines()
            fields = {name: text for name, _, text in (line.partition(":") for line in lines)}
            if fields["Uid"].split()[0] == own:
                found += int(fields["Threads"])
    return found


def _attempt(what: str, step: Callable[[], None]) -> bool:
    """Whether a step worked; why not goes to standard error."""
    try:
        step()
    except OSError as error:
        print(f"sandbox: {what}: {error}", file=sys.stderr)
        return False
    return True


# -- namespaces ------------------------------------------------------------------------------
#
# Three processes stay behind the measuring one. The launcher is the one that the parent knows:
# nothing of it changes, so that it can still go on where namespaces are refused. The one in the
# middle leaves the namespaces, but for that of processes, which only its children have. The first
# of those must not be the measuring one, because a first process ignores its own abort().


def _in_namespaces(
    sandbox: Sandbox, folders: Folders, visible: VisiblePaths, lifeline: int
) -> dict[str, str] | None:
    """Facts in the measuring process, None in this one where the system refuses."""
    told, tell = os.pipe()
    launcher = os.getpid()
    middle = os.fork()
    if middle:
        os.close(tell)
        if _stay_behind(told, lifeline):
            os.waitpid(middle, 0)
        os.close(told)
        return None
    os.close(told)
    try:
        _follow(launcher)
        uid, gid, root = os.getuid(), os.getgid(), os.geteuid() == 0
        user = _own_user(launcher) if root else (uid, gid)
        threads = _threads_of(user[0])
        kinds = ["mount", "ipc", "pid", *([] if sandbox.network else ["network"])]
        kinds += [] if root else ["user"]
        unshare(sum(NEW_NAMESPACE[kind] for kind in kinds))
        if not root:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
        _in_child(tell)
        _follow(None)
        hide_memory(hidden=True)
        _in_child(tell)
        enter_own_root(visible, folders.shared, folders.scratch, SCRATCH_FOLDERS)
        if root:
            _become(user, folders.scratch, visible)
        hide_memory(hidden=False)
    except OSError as error:
        print(f"sandbox: namespaces: {error}", file=sys.stderr)
        os._exit(_NOT_ENTERED)
    facts = {
        "sandbox.files": "own root",
        "sandbox.user": _name_of(user[0]) if root else "the agent's",
    }
    facts |= _limited(sandbox, threads, own_processes=True, scoped=True)
    os.write(tell, _ENTERED)
    os.close(tell)
    return facts


def _follow(parent: int | None) -> None:
    """End when the parent does; ``parent`` is its number, where this process can see it."""
    die_with_parent(signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(_NOT_ENTERED)


def _in_child(tell: int) -> None:
    """Go on in a child; this process waits for it, tells how it ended and ends."""
    child = os.fork()
    if not child:
        return
    for descriptor in (0, 1):
        os.close(descriptor)
    drop_capabilities()
    while True:
        ended, status = os.wait()
        if ended == child:
            break
    if os.getpid() == 1:
        os.write(tell, status.to_bytes(4, "little"))
    os._exit(0)


def _stay_behind(told: int, lifeline: int) -> bool:
    """Wait for the end of the measuring process and end as it did; True if it never got there."""
    said = b""
    while True:
        ready, _, _ = select.select([told, lifeline], [], [])
        if lifeline in ready:
            os.killpg(0, signal.SIGKILL)
        chunk = os.read(told, 64)
        said += chunk
        if not chunk:
            break
        if said == _ENTERED:
            # The measuring process is the only one to answer.
            for descriptor in (0, 1):
                os.close(descriptor)
    if not said.startswith(_ENTERED):
        return True
    status = int.from_bytes(said[1:5], "little")
    if len(said) < 5 or os.WIFSIGNALED(status):
        number = os.WTERMSIG(status) if len(said) >= 5 else signal.SIGKILL
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


def _own_user(launcher: int) -> tuple[int, int]:
    """A user that no other sandbox of this machine has now, and the group that owns nothing.

    Where this process has not so many users (user_namespaces(7)), as in some containers, it is
    ``nobody``: then sandboxes count each other's processes.
    """
    nobody = _nobody()
    own = _FIRST_USER + launcher
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        first, _, count = map(int, line.split())
        if first <= own < first + count:
            return own, nobody[1]
    return nobody


def _name_of(user: int) -> str:
    # Not its number, which is another for each child: facts say what holds of a device.
    return "its own" if user >= _FIRST_USER else f"nobody ({user})"


def _nobody() -> tuple[int, int]:
    """The user and the group that own nothing."""
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        return 65534, 65534
    return nobody.pw_uid, nobody.pw_gid


def _become(user: tuple[int, int], scratch: Path, visible: VisiblePaths) -> None:
    """Give up being root; the groups of device nodes stay."""
    uid, gid = user
    nodes = [
        node
        for path in visible.devices
        for node in ([path] if not path.is_dir() else path.rglob("*"))
    ]
    groups = {node.stat().st_gid for node in nodes if node.exists()} - {0}
    for folder in (scratch, *(scratch / name for name in SCRATCH_FOLDERS)):
        os.chown(folder, uid, gid)
    os.setgroups(sorted(groups))
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
