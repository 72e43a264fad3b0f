"""``nestmap sketches``: the table, the documents, and schedules that ``nestmap derive`` takes."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from nestmap.cli import app

PRODUCT = """program "p" {
  size M = 8
  size N = 8
  size K = 4
  input a : [[float]K]M
  input b : [[float]N]K
  kernel product = map#row(x => join(map#column(y => reduce((acc, k) => fma(k.0, k.1, acc), 0.0,
    zip(x, y)), transpose(b))), a)
}
"""


def test_sketches_are_listed_and_shown_as_schedules(tmp_path: Path) -> None:
    program = tmp_path / "p.txt"
    program.write_text(PRODUCT)
    asked = ["sketches", str(program), "--device", "h200"]
    run = CliRunner().invoke
    table = run(app, asked)
    assert table.exit_code == 0
    assert "blocks-local-column" in table.output
    listed = json.loads(run(app, [*asked, "--json"]).output)
    assert {"name", "reason", "parameters", "schedule"} == set(listed[0])
    schedule = tmp_path / "s.schedule"
    schedule.write_text(run(app, [*asked, "--show", "tile-column"]).output)
    derived = run(app, ["derive", str(program), str(schedule), "--last"])
    assert derived.exit_code == 0
    assert "row_in_tile" in derived.output
    unknown = run(app, [*asked, "--show", "nothing"])
    assert unknown.exit_code != 0
    assert "tile-column" in unknown.output
