"""Linux system calls that Python has no words for, and a filter for those that kernels never need.

Numbers and structures are those of the kernel's headers (``asm/unistd.h``, ``linux/seccomp.h``,
``linux/filter.h``, ``linux/capability.h``); they never change for an architecture.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator
from dataclasses import dataclass

NEW_NAMESPACE = {
    "mount": 0x00020000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "network": 0x40000000,
}
#: Every CLONE_NEW… flag, of cgroups and host names too.
_ANY_NAMESPACE = 0x7E020000
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_DETACH = 2

_PERMIT = 0x7FFF0000
_REFUSE = 0x00050000
_SET_MODE_FILTER = 1
#: Without it kernels before 5.16 slow speculative loads in the whole process: times would be wrong.
_KEEP_SPECULATION = 4
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
#: Numbers from here on are x86-64's second set, "x32".
_X32 = 0x40000000

# Numbers on x86-64, on aarch64 and on 32-bit ARM.
_REFUSED = {
    "socket": (41, 198, 281),
    "ptrace": (101, 117, 26),
    "process_vm_readv": (310, 270, 376),
    "process_vm_writev": (311, 271, 377),
    "kcmp": (312, 272, 378),
    "mount": (165, 40, 21),
    "umount2": (166, 39, 52),
    "pivot_root": (155, 41, 218),
    "chroot": (161, 51, 61),
    "setns": (308, 268, 375),
    "unshare": (272, 97, 337),
    "open_by_handle_at": (304, 265, 371),
    "bpf": (321, 280, 386),
    "perf_event_open": (298, 241, 364),
    "userfaultfd": (323, 282, 388),
    "add_key": (248, 217, 309),
    "request_key": (249, 218, 310),
    "keyctl": (250, 219, 311),
    "kexec_load": (246, 104, 347),
    "init_module": (175, 105, 128),
    "finit_module": (313, 273, 379),
    "delete_module": (176, 106, 129),
    "reboot": (169, 142, 88),
    "swapon": (167, 224, 87),
    "swapoff": (168, 225, 115),
    "settimeofday": (164, 170, 79),
    "clock_settime": (227, 112, 262),
    "adjtimex": (159, 171, 124),
    "clock_adjtime": (305, 266, 372),
    "acct": (163, 89, 51),
    "quotactl": (179, 60, 131),
    "syslog": (103, 116, 103),
    # The same everywhere since Linux 5.1.
    "pidfd_send_signal": (424, 424, 424),
    "open_tree": (428, 428, 428),
    "move_mount": (429, 429, 429),
    "fsopen": (430, 430, 430),
    "fsmount": (432, 432, 432),
    "fspick": (433, 433, 433),
    "pidfd_open": (434, 434, 434),
    "pidfd_getfd": (438, 438, 438),
    "mount_setattr": (442, 442, 442),
}
#: What a namespace of their own (``ipc``) keeps apart, and no file: memory, queues and semaphores
#: by which processes of a user reach each other.
_SHARED = {
    "shmget": (29, 194, 307),
    "shmat": (30, 196, 305),
    "shmctl": (31, 195, 308),
    "semget": (64, 190, 299),
    "semop": (65, 193, 298),
    "semctl": (66, 191, 300),
    "semtimedop": (220, 192, 312),
    "msgget": (68, 186, 303),
    "msgsnd": (69, 189, 301),
    "msgrcv": (70, 188, 302),
    "msgctl": (71, 187, 304),
    "mq_open": (240, 180, 274),
    "mq_unlink": (241, 181, 275),
}
#: Permitted where the first argument is 0 (the process itself, or its group) or its own number.
_OF_ITSELF = {"prlimit64": (302, 261, 369)}
_SIGNALS = {
    "kill": (62, 129, 37),
    "tkill": (200, 130, 238),
    "tgkill": (234, 131, 268),
    "rt_sigqueueinfo": (129, 138, 178),
    "rt_tgsigqueueinfo": (297, 240, 363),
}
#: Said not to exist, so that libraries fall back: what clone3 is asked for lies where no filter
#: sees it, and rings make calls that no filter sees.
_UNKNOWN = {
    "clone3": (435, 435, 435),
    "io_uring_setup": (425, 425, 425),
    "io_uring_enter": (426, 426, 426),
    "io_uring_register": (427, 427, 427),
}
#: Said to have worked, where nothing else keeps a process in the group that is killed as a whole.
_LEAVING = {"setsid": (112, 157, 66), "setpgid": (109, 154, 57)}


@dataclass(frozen=True, slots=True)
class _Architecture:
    """A column of the tables above, and what the kernel calls it."""

    column: int
    audit: int
    clone: int
    seccomp: int


_ARCHITECTURES = {
    "x86_64": _Architecture(0, 0xC000003E, 56, 317),
    "aarch64": _Architecture(1, 0xC00000B7, 220, 277),
    "armv7l": _Architecture(2, 0x40000028, 120, 383),
    # 32-bit programs under a kernel of 64 bits.
    "armv8l": _Architecture(2, 0x40000028, 120, 383),
}

libc = ctypes.CDLL(None, use_errno=True)


def call(number: int, *arguments: object) -> int:
    """A system call by its number; raises OSError."""
    return done(libc.syscall(number, *arguments), f"system call {number}")


def done(result: int, what: str) -> int:
    """What a function of libc answered; OSError where that is -1."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def _machine() -> _Architecture:
    machine = _ARCHITECTURES.get(platform.machine())
    if machine is None:
        raise OSError(errno.ENOSYS, "no table of system calls", platform.machine())
    return machine


def leave_root() -> None:
    """Have the working folder as root folder, and the old one nowhere; raises OSError."""
    call(_REFUSED["pivot_root"][_machine().column], b".", b".")
    done(libc.umount2(b".", _DETACH), "umount2")


def unshare(flags: int) -> None:
    """unshare(2); raises OSError."""
    done(libc.unshare(flags), "unshare")


def die_with_parent(signal_number: int) -> None:
    """Have this process get a signal when the thread that forked it ends; raises OSError."""
    done(libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "PR_SET_PDEATHSIG")


def hide_memory(*, hidden: bool) -> None:
    """Whether other processes of the same user may look into this one; raises OSError."""
    done(libc.prctl(_PR_SET_DUMPABLE, 0 if hidden else 1, 0, 0, 0), "PR_SET_DUMPABLE")


def gain_nothing() -> None:
    """No program that this process starts gets more rights than it has; raises OSError."""
    done(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")


def drop_capabilities() -> None:
    """Give up every capability, for good once :func:`gain_nothing` was called; raises OSError."""
    header = struct.pack("=Ii", 0x20080522, 0)
    done(libc.capset(header, bytes(24)), "capset")


def filter_calls(*, own_processes: bool, may_signal: bool) -> None:
    """Refuse the calls of the tables above in this process and all that it starts.

    ``own_processes``: it has namespaces of processes and of what they share, so that it may leave
    its group and reach whatever it sees. ``may_signal``: something else keeps its signals from
    others; if not, it may send them to itself and to its whole group, and what it starts to none
    but these.

    Raises OSError where the system has no filters, or has another architecture than those known.
    """
    machine = _machine()
    program = b"".join(_instructions(machine, own_processes, may_signal or own_processes))
    code = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: a number of 8 bytes each, and where they are.
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    for flags in (_KEEP_SPECULATION, 0):
        try:
            call(machine.seccomp, _SET_MODE_FILTER, flags, header)
        except OSError as error:
            if error.errno != errno.EINVAL or not flags:
                raise
        else:
            return


def _instructions(machine: _Architecture, own_processes: bool, may_signal: bool) -> Iterator[bytes]:
    """The filter as the kernel's old packet filter has it: each instruction is 8 bytes."""

    def instruction(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("=HBBI", code, yes, no, value)

    refuse = instruction(_RETURN, _REFUSE | errno.EPERM)
    yield instruction(_LOAD, _ARCHITECTURE_AT)
    yield instruction(_EQUAL, machine.audit, yes=1)
    yield refuse
    yield instruction(_LOAD, _NUMBER_AT)
    if machine.column == 0:
        yield instruction(_AT_LEAST, _X32, no=1)
        yield refuse
    answers = [(_REFUSED, errno.EPERM), (_UNKNOWN, errno.ENOSYS)]
    if not own_processes:
        answers += [(_SHARED, errno.EPERM), (_LEAVING, 0)]
    for table, answer in answers:
        for numbers in table.values():
            yield instruction(_EQUAL, numbers[machine.column], no=1)
            yield instruction(_RETURN, _REFUSE | answer)
    to_itself = {} if own_processes else _OF_ITSELF | ({} if may_signal else _SIGNALS)
    for numbers in to_itself.values():
        yield instruction(_EQUAL, numbers[machine.column], no=5)
        yield instruction(_LOAD, _FIRST_ARGUMENT_AT)
        yield instruction(_EQUAL, 0, yes=2)
        yield instruction(_EQUAL, os.getpid(), yes=1)
        yield refuse
        yield instruction(_RETURN, _PERMIT)
    yield instruction(_EQUAL, machine.clone, no=3)
    yield instruction(_LOAD, _FIRST_ARGUMENT_AT)
    yield instruction(_ANY_BIT, _ANY_NAMESPACE, no=1)
    yield refuse
    yield instruction(_RETURN, _PERMIT)
