"""What is left of a failing case: a folder with all that shows it again."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.proofs.soundness.judges import Fault
from mapper.ast_model.codec import program_from_json
from mapper.ast_model.printer import to_text
from mapper.errors import InputError, Problem

_TEST = '''"""Found by `nestmap bench soundness`, draft {number} of seed {seed}: {label}."""

from __future__ import annotations

from mapper.profiles import load_profile
from bench.proofs.soundness.judges import OclgrindJudge, PoclJudge
from bench.proofs.soundness.replay import faults_of

CASE = {{
    "options": {options},
    "assignment": {assignment},
    "program": """
{program}""",
}}


def test_{name}() -> None:
    with PoclJudge() as pocl:
        judges = {{"oclgrind": OclgrindJudge(), "pocl": pocl}}
        assert faults_of(CASE, load_profile("pocl"), judges) == []
'''


def write_case(
    folder: Path, seed: int, number: int, value: dict[str, Any], faults: Sequence[Fault]
) -> Path:
    """Program, assignment, findings and a test, in a folder of its own; its path.

    ``nestmap check`` and ``nestmap kernel`` read the first two. InputError where nothing can
    be written.
    """
    label = faults[0].label
    name = f"{re.sub('[^a-z]+', '_', label.lower()).strip('_')}_{seed}_{number}"
    place = folder / name
    files = {"program.json": json.dumps(value["program"], indent=1) + "\n"}
    files["findings.txt"] = "\n\n".join(f"{fault.label}\n{fault.message}" for fault in faults)
    if "assignment" in value:
        files["assignment.json"] = json.dumps(value["assignment"], indent=1) + "\n"
        files[f"test_{name}.py"] = _TEST.format(
            name=name,
            number=number,
            seed=seed,
            label=label,
            options=value["options"],
            assignment=value["assignment"],
            program=to_text(program_from_json(value["program"])),
        )
    try:
        place.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (place / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(Problem(str(place), f"cannot be written: {error.strerror}")) from error
    return place
