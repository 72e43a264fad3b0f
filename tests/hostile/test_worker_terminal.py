"""What a server says cannot take over the terminal of a worker."""

from __future__ import annotations

import io
import json

from worker.agent.announcing import Announcer, printable

ATTACK = "\x1b]0;owned\x07\x1b[2J\x1b[31mroot# \u202egnp.exe\x9b1A ok é 中"


def test_control_characters_of_others_are_shown_as_escapes():
    stream = io.StringIO()
    announcer = Announcer(False, stream)
    announcer.say("refused", f"the service said: {ATTACK}")
    shown = stream.getvalue()
    assert all(letter.isprintable() for letter in shown.removesuffix("\n"))
    assert "\\x1b" in shown and "\\u202e" in shown and "é 中" in shown
    # Nor do they come back to the service, or to whoever reads the board's log there.
    assert "\x1b" not in announcer.log()


def test_json_for_programs_has_them_escaped_too():
    stream = io.StringIO()
    Announcer(True, stream).say("refused", ATTACK)
    assert stream.getvalue().rstrip("\n").isprintable()
    assert json.loads(stream.getvalue())["text"] == printable(" ".join(ATTACK.split()))
