"""Whatever a user does: one clear message, no traceback, the documented exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import nestmap
from nestmap.cli import app
from nestmap.cli.exit_codes import ExitCode

LAYER = {"schema": "nestmap/layer/1", "channels": 4, "height": 8, "width": 8, "filters": 4}
TREE = Path(__file__).parents[3] / "examples" / "cc22_convolution_tree.json"
HIGH = ("--variant", "high-level")


def run(*args: str, stdin: str = "") -> Result:
    result = CliRunner().invoke(app, list(args), input=stdin)
    assert "Traceback" not in result.output
    return result


def layer(**changes: object) -> str:
    return json.dumps({**LAYER, **changes})


def deep_json(levels: int) -> str:
    return '{"tree":' + '{"nested":[' * levels + "]}" * levels + "}"


def expression(text: str) -> str:
    node = {"id": 1, "trip": text, "reads": [], "writes": "global", "perfectly_nested": False,
            "nested": []}  # fmt: skip
    return json.dumps({"tree": node})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("  \n", "is empty"),
        ('{"tree": [}', "line 1, column 11"),
        ("[1, 2]", "is not an object"),
        ("{}", "neither a layer nor a program"),
        ('{"schema": "nestmap/layer/9"}', "unknown schema"),
        ('{"schema": [1]}', "unknown schema"),
        (layer(colour=1), "/colour: unknown field"),
        (layer(height="8"), "layer.height: is not an integer"),
        (layer(height=True), "layer.height: is not an integer"),
        (layer(height=0), "layer.height: is out of range; found 0"),
        (layer(width=-1), "layer.width: is out of range; found -1"),
        (layer(height=2), "larger than the padded input"),
        (layer(name=1), "/name: is not a text"),
        ('{"channels": 1, "channels": 1}', "a key stands twice"),
        ('{"channels": 1e999}', "number is too large"),
        (expression("(" * 10_000 + "1" + ")" * 10_000), "too long"),
        (expression("(" * 4_000 + "1" + ")" * 4_000), "nest too deeply"),
        (expression("__import__('os')"), "not understood"),
        (deep_json(10_000), "nested too deeply"),
        ('program "p"\nsize N = ' + "(" * 10_000 + "1" + ")" * 10_000, "nest too deeply"),
        ("this is no program", "not understood"),
        ("a\0b", "binary"),
    ],
)
def test_bad_subjects(text: str, words: str):
    result = run("solve", "-", stdin=text)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert words in result.stderr
    assert result.stderr.startswith("error: standard input")
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("solve", "no-such-file"), 2, "does not exist"),
        (("solve", "vgg16/99"), 2, "vgg16/28"),
        (("solve", "/"), 2, "is a directory"),
        (("solve", "/dev/zero"), 2, "is not a regular file"),
        (("solve", "a\0b"), 2, "cannot be read"),
        (("solve", "x" * 5000), 2, "cannot be read"),
        (("solve", "vgg16/7", "--variant", "nothing"), 2, "direct, partial, high-level"),
        (("solve", "vgg16/7", "--mode", "lax"), 2, "paper"),
        (("solve", "vgg16/7", "--device", "toaster"), 3, "mali-g72"),
        (("solve", "vgg16/7", "--device", "opencl:nobody/nothing", *HIGH), 3, "no OpenCL device"),
        (("solve", "vgg16/7", "--limit", "-1"), 2, "--limit"),
        (("solve", "vgg16/7", "--count", "--sample", "1"), 2, "exclude each other"),
        (("solve", "vgg16/7", *HIGH, "--pin", "row=Q"), 2, "--pin row: no such value"),
        (("solve", "vgg16/7", *HIGH, "--pin", "nothing=S"), 2, "nothing of this name"),
        (("solve", "vgg16/7", *HIGH, "--pin", "row"), 2, "not a pin"),
        (("solve", "vgg16/7", *HIGH, "--pin", "row=S", "--pin", "row=F"), 2, "row"),
        (("check", "vgg16/7", "no-such-file", *HIGH), 2, "does not exist"),
        (("kernel", "vgg16/7", *HIGH, "--out", "/no/such/folder/k.cl"), 2, "cannot be written"),
        (("front", "--db", "/no/such/store.sqlite3"), 4, "no such database"),
        (("front", "--db", "/"), 4, "directory"),
        (("front", "--db", "mysql://somewhere/x"), 4, "not supported"),
        (("nonsense",), 2, "No such command"),
        (("solve",), 2, "Missing argument"),
    ],
)
def test_bad_arguments(args: tuple[str, ...], code: int, words: str):
    result = run(*args)
    assert result.exit_code == code
    assert words in result.stderr
    assert result.stderr.startswith("error: ")
    as_json = run(*args, "--json")
    assert as_json.exit_code == code
    (problem, *_) = json.loads(as_json.stderr)["error"]["problems"]
    assert set(problem) == {"path", "message", "found", "allowed", "remedy"}


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ("[]", "a mapping is an object"),
        ("{", "malformed JSON"),
        ('{"row": "W0"}', "/mapping/column: no schedule is given"),
        ('{"row": 99, "column": 0, "filter": 0}', "/mapping/row: not a schedule code"),
        ('{"row": null, "column": [], "filter": true}', "/mapping/row: not a schedule code"),
        ('{"row": 1.5, "column": 0, "filter": 0}', "/mapping/row: not a schedule code"),
        ('{"row": 0, "column": 0, "filter": 0, "x": 0}', "/mapping/x"),
        ('{"mapping": {"row": 0, "column": 0, "filter": 0}, "size": 1}', "/size: unknown field"),
        ('{"mapping": {}, "local_sizes": {"convolution": [1, 1]}}', "three sizes"),
        ('{"mapping": {}, "local_sizes": {"convolution": [1, 1, "a"]}}', "is not an integer"),
        ('{"mapping": {}, "local_sizes": 3}', "/local_sizes: is not an object"),
        ('{"mapping": {}, "parameters": {"theta": 1}}', "/parameters/theta"),
    ],
)
def test_bad_mappings(mapping: str, words: str):
    result = run("check", "vgg16/7", "-", *HIGH, stdin=mapping)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert words in result.stderr


def test_a_value_outside_its_domain_is_a_violation():
    mapping = {"mapping": {"row": "F", "column": 0, "filter": 0}}
    result = run("check", "vgg16/7", "-", *HIGH, "--json", stdin=json.dumps(mapping))
    assert result.exit_code == ExitCode.NEGATIVE
    assert json.loads(result.stdout)["violations"][0]["rule"] == "perfect-nesting"


def test_no_kernel_for_a_bare_tree():
    tree = expression("4").replace('"tree"', '"schema": "nestmap/nest/1", "tree"')
    result = run("kernel", "-", stdin=tree)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "bare nest tree" in result.stderr


def test_unexpected_failures_are_one_line(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr("nestmap.cli.constraints.prepare", fail)
    result = run("constraints", "vgg16/7")
    assert result.exit_code == ExitCode.UNEXPECTED
    assert result.stderr.count("\n") == 1
    assert "NESTMAP_DEBUG=1" in result.stderr


def in_a_process(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nestmap", *args],
        input=stdin, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


# A process inherits the peak memory of the one that forked it, and this one may be large by now.
IN_BETWEEN = """
import resource, subprocess, sys
code = subprocess.run([sys.executable, "-m", "nestmap", *sys.argv[1:]]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
sys.exit(code)
"""


def most_bytes_of(*args: str) -> tuple[subprocess.CompletedProcess[str], int]:
    """The end of a command that writes nothing to stdout, and the most memory that it had."""
    result = subprocess.run(
        [sys.executable, "-c", IN_BETWEEN, *args],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return result, int(result.stdout)


@pytest.mark.parametrize("node", ["{}", '{"id":1}', '{"id":%d,"nested":[]}'])
def test_a_million_maps_are_refused_soon_and_in_little_memory(tmp_path: Path, node: str):
    path = tmp_path / "tree.json"
    nodes = (node % number if "%" in node else node for number in range(10**6))
    path.write_text(f'{{"tree":[{",".join(nodes)}]}}', encoding="utf-8")
    started = time.monotonic()
    result, most_bytes = most_bytes_of("solve", str(path))
    assert time.monotonic() - started < 20
    assert most_bytes < 10**9
    assert result.returncode == ExitCode.BAD_INPUT
    assert "too many maps or nodes" in result.stderr or "is too long" in result.stderr


def test_more_maps_than_can_be_solved_are_refused():
    nodes = ",".join(json.dumps(json.loads(expression("4"))["tree"] | {"id": n})
                     for n in range(1000))  # fmt: skip
    result = run("solve", "-", stdin=f'{{"tree":[{nodes}]}}')
    assert result.exit_code == ExitCode.LIMIT
    assert "more maps than can be solved" in result.stderr


def test_a_closed_pipe_is_no_error():
    command = f"{sys.executable} -m nestmap constraints vgg16/7 --json; echo $? >&2"
    with subprocess.Popen(
        ["/bin/sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == "0\n"


def test_help_loads_neither_solver_nor_store_nor_opencl():
    code = (
        "import sys, nestmap.cli; "
        "sys.exit(' '.join({'ortools', 'sqlalchemy', 'pyopencl', 'alembic'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (1, "\n")
    assert in_a_process("--version").stdout == f"nestmap {nestmap.__version__}\n"


def test_an_interrupt_ends_with_130():
    process = subprocess.Popen(
        [sys.executable, "-m", "nestmap", "solve", "vgg16/7", *HIGH, "--limit", "0", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(2)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED
    assert errors == ""


def test_a_store_that_cannot_be_read(tmp_path: Path):
    path = tmp_path / "store.sqlite3"
    path.write_bytes(b"no database" * 100)
    result = run("front", "--db", str(path))
    assert result.exit_code == ExitCode.STORE
    assert not (tmp_path / "other.sqlite3").exists()


def test_the_version_is_the_package_s():
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert nestmap.__version__ == project["project"]["version"] == version("nestmap")


def test_every_public_name_is_there():
    for name in nestmap.__all__:
        assert getattr(nestmap, name) is not None
    with pytest.raises(AttributeError):
        _ = nestmap.nothing  # pyright: ignore[reportAttributeAccessIssue]


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_an_interrupt_while_counting_ends_with_130():
    # The longest count there is (40 s on this machine), so that it is under way on any.
    process = subprocess.Popen(
        [sys.executable, "-m", "nestmap", "solve", "vgg16/7", "--count", "--joint"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    # By processor time: on a busy machine it may not even have been imported after seconds.
    while processor_s(process.pid) < 3:
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(2)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED
    assert errors == ""


def test_an_empty_environment_is_enough():
    result = subprocess.run(
        [sys.executable, "-m", "nestmap", "--help"],
        env={"PATH": os.environ["PATH"]}, capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 0
