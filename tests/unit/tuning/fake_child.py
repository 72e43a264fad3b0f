"""Stands in for candidate_child: does what the mapping's only code asks for, on no device."""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import sys
import time
from dataclasses import asdict

from mapper.measurement import Timed
from nestmap.tuning.trial import Trial
from worker.devices.null import NULL_PROFILE
from worker.measuring.child_main import die_with_parent
from worker.measuring.wire import StreamEnded, receive, send

FINE, HANGS_WITH_THE_DEVICE, CRASHES, TALKS_NONSENSE, RETIRES, HANGS_BUILDING = range(6)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device")
    parser.add_argument("--lifeline", type=int)
    arguments = parser.parse_args()
    die_with_parent(arguments.lifeline)
    replies = os.dup(1)
    if arguments.device == "absent":
        problem = {"path": "device", "message": "is absent"}
        send(replies, {"type": "device-error", "problems": [problem]})
        return
    facts = {"device.name": "fake"}
    send(replies, {"type": "ready", "facts": facts, "profile": asdict(NULL_PROFILE)})
    lock, variant = -1, ""
    while True:
        try:
            request = receive(sys.stdin.fileno())
        except StreamEnded:
            return
        send(replies, {"type": "accepted"})
        if request["type"] == "task":
            variant = request["variant"]
            lock = os.open(request["lock"], os.O_RDWR | os.O_CREAT, 0o600)
            send(replies, {"type": "begun"})
            continue
        wish = request["choices"]["mapping"]["1"]
        if wish == HANGS_BUILDING:
            time.sleep(60)
        send(replies, {"type": "stage", "name": "waiting"})
        fcntl.flock(lock, fcntl.LOCK_EX)
        send(replies, {"type": "stage", "name": "running"})
        if wish == HANGS_WITH_THE_DEVICE:
            time.sleep(60)
        if wish == CRASHES:
            os.kill(os.getpid(), signal.SIGSEGV)
        fcntl.flock(lock, fcntl.LOCK_UN)
        trial = Trial(
            request["choices"], Timed((os.getpid(),), 0.0, 0.0), source_hash=f"of {variant}"
        )
        value = {"nonsense": 1} if wish == TALKS_NONSENSE else trial.to_json()
        send(replies, {"type": "trial", "trial": value, "retire": wish == RETIRES})


if __name__ == "__main__":
    main()
