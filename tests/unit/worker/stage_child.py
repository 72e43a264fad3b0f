"""Stands in for the measuring child: says the stages that a plan's source names, on no device.

The source is words: a stage is said, ``sleep`` waits for a minute, ``turn`` takes the turn that it
was given and ``back`` gives it back, ``die`` crashes, ``retire`` asks for another process. The
trial of a timed answer is the process id.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import sys
import time
from dataclasses import asdict

from mapper.measurement import Timed
from worker.devices.null import NULL_PROFILE
from worker.measuring.child_main import die_with_parent
from worker.measuring.settings import STAGES
from worker.measuring.wire import StreamEnded, outcome_to_json, receive, send


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device")
    parser.add_argument("--lifeline", type=int)
    die_with_parent(parser.parse_args().lifeline)
    replies = os.dup(1)
    facts = {"device.kind": "cpu"}
    send(replies, {"type": "ready", "facts": facts, "profile": asdict(NULL_PROFILE)})
    turn = -1
    while True:
        try:
            request = receive(sys.stdin.fileno())
        except StreamEnded:
            return
        send(replies, {"type": "accepted"})
        words = request["plan"]["source"].split() if request["with_reference"] else []
        for word in words:
            if word in STAGES:
                send(replies, {"type": "stage", "name": word})
            elif word == "sleep":
                time.sleep(60)
            elif word == "nap":
                time.sleep(0.5)
            elif word == "turn":
                turn = os.open(request["turn"], os.O_RDONLY)
                fcntl.flock(turn, fcntl.LOCK_EX)
            elif word == "back":
                os.close(turn)
            elif word == "die":
                os.kill(os.getpid(), signal.SIGSEGV)
            elif word == "nonsense":
                send(replies, {"type": "stage", "name": ["a list"]})
        outcome = outcome_to_json(Timed((os.getpid(),), 0.0, 0.0))
        send(replies, {"type": "outcome", "outcome": outcome, "retire": "retire" in words})


if __name__ == "__main__":
    main()
