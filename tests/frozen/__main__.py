"""``python -m tests.frozen``: find every frozen fact and say what differs (`make frozen`).

``--write REASON`` freezes what is found instead: where something changes on purpose. The reason is
kept beside the facts and belongs into the changelog too. ``--show NAME`` prints the constraints or
the kernels behind a hash, to be compared between two commits.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.frozen.facts import facts
from tests.frozen.file import Differences, changed, read, write
from tests.frozen.texts import text_behind

_TOLD_EACH = 100


def main() -> int:
    """The exit status: 1 where something differs and is not to be written."""
    parser = argparse.ArgumentParser(prog="python -m tests.frozen", description=__doc__)
    parser.add_argument("--only", default="", metavar="BEGINNING", help="facts named like this")
    parser.add_argument("--write", metavar="REASON", help="why what differs is meant to")
    parser.add_argument("--show", metavar="NAME", help="print what a fact's hashes are of")
    options = parser.parse_args()
    if options.show:
        print(text_behind(options.show))
        return 0
    if options.write is not None and len(options.write.split()) < 3:
        parser.error("--write needs a reason that a colleague understands")
    frozen, every = read(), facts()
    wanted = {n: fact for n, fact in every.items() if n.startswith(options.only)}
    found: dict[str, object] = {}
    started = time.process_time()
    for number, (name, fact) in enumerate(wanted.items()):
        found[name] = fact.find()
        if not (number + 1) % _TOLD_EACH:
            print(f"{number + 1} of {len(wanted)}", file=sys.stderr, flush=True)
    gone = [name for name in frozen.facts if name not in every]
    differences = Differences.between(frozen.facts, found, gone)
    print(differences.text() or "nothing differs")
    print(f"{len(found)} facts, {time.process_time() - started:.0f} s of processor time")
    if options.write is None or not differences:
        return 1 if differences else 0
    write(changed(frozen, found, gone, options.write, differences))
    return 0


if __name__ == "__main__":
    sys.exit(main())
