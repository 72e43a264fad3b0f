"""What every test may use: golden texts, needed tools, Hypothesis profiles, no skips in CI."""

from __future__ import annotations

import ctypes
import difflib
import gc
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

import pytest
from hypothesis import settings

from tests import own_process
from tests.effort import cases
from tests.own_process import run_alone, run_what_is_asked, runs_alone
from tests.seconds import is_of_another_turn, is_quick, put_long_ones_first, record
from worker.devices import probed_target
from worker.measuring import loaded_plan

if TYPE_CHECKING:
    from bench.proofs.soundness.judges import Judge

GOLDEN_FOLDER = Path(__file__).parent / "golden"
IN_CI = os.environ.get("NESTMAP_CI") == "1"
_PR_SET_CHILD_SUBREAPER = 36
#: What PoCL shall compile the kernels under test for; None: what fits this processor.
POCL_TARGET = os.environ.get(probed_target.SETTING)

# Kernels compile and solvers start inside properties, so no deadline: it would only be noise.
EXAMPLES = cases(40, 100)
settings.register_profile("dev", deadline=None, max_examples=EXAMPLES)
settings.register_profile("ci", deadline=None, print_blob=True, max_examples=EXAMPLES)
settings.load_profile("ci" if IN_CI else "dev")

# Tests start hundreds of processes, and each would compile all it imports once more: three
# times the time of its start.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    sys.dont_write_bytecode = False

# A shell starts what it puts in the background with SIGINT ignored, and children inherit that:
# then none of the commands under test would end on Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write tests/golden anew instead of comparing with it",
    )
    parser.addoption(
        "--quick",
        action="store_true",
        help="only unit tests that are quick and need no device, server, browser or tool",
    )
    parser.addoption(
        "--record-seconds",
        action="store_true",
        help="write tests/seconds.txt anew; for a run of all tests on a quiet machine",
    )
    parser.addoption(
        "--every",
        action="store_true",
        help="all long tests, where no file is named: else those whose turn it is at this commit",
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(name, text)``: ``text`` must equal the file ``tests/golden/<name>``."""
    update = bool(request.config.getoption("--update-golden"))

    def compare(name: str, text: str) -> None:
        path = GOLDEN_FOLDER / name
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"no golden text tests/golden/{name}: run `make golden` and read it")
        expected = path.read_text(encoding="utf-8")
        if text == expected:
            return
        diff = difflib.unified_diff(
            expected.splitlines(), text.splitlines(), f"tests/golden/{name}", "now", lineterm=""
        )
        lines = "\n".join(diff) or "(only line ends differ)"
        pytest.fail(f"{lines}\n\nIf this change is meant: `make golden`.", pytrace=False)

    return compare


@pytest.fixture(scope="module")
def judges() -> Iterator[dict[str, Judge]]:
    """Who judges cases of programs: Oclgrind, and PoCL in a child."""
    from bench.proofs.soundness.judges import OclgrindJudge, PoclJudge

    with PoclJudge() as pocl:
        yield {"oclgrind": OclgrindJudge(), "pocl": pocl}


@pytest.fixture(scope="session", autouse=True)
def no_kernel_in_this_process() -> Iterator[None]:
    """A test that opens a device for kernels beside other tests fails, before a driver dies."""

    def refuse(spec: str) -> Never:
        pytest.fail(
            f"a kernel would run in the process of the tests on {spec}: take "
            "tests.kernels.run_once, or pytest.mark.kernels(alone=True)",
            pytrace=False,
        )

    with pytest.MonkeyPatch.context() as patch:
        if own_process.SETTING not in os.environ:
            patch.setattr(loaded_plan, "open_device", refuse)
        yield


def pytest_sessionstart() -> None:
    # Of what is imported nearly nothing goes; to look for it takes a fifth of the collection.
    gc.disable()


def pytest_collection_finish() -> None:
    """All tests' modules hold some 700 MiB, which no collection shall look through again; what
    tests leave is mostly free without one, which took 8 % of all time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


def _runs_every_test(config: pytest.Config) -> bool:
    """Whether long tests wait for no turn. A process of xdist is told: it is named folders."""
    told = getattr(config, "workerinput", {}).get("every")
    named = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
    return bool(config.getoption("--every") or (named if told is None else told))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of xdist which tests it will run."""
    node.workerinput["every"] = _runs_every_test(node.config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        _leave_out(config, items, lambda item: not is_quick(item))
    elif not _runs_every_test(config):
        _leave_out(config, items, is_of_another_turn)
    put_long_ones_first(items)


def _leave_out(
    config: pytest.Config, items: list[pytest.Item], left_out: Callable[[pytest.Item], bool]
) -> None:
    config.hook.pytest_deselected(items=[item for item in items if left_out(item)])
    items[:] = [item for item in items if not left_out(item)]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """In a process below the tests': the tests that it is told, one by one."""
    return run_what_is_asked(session)


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Show PoCL to tests of kernels only; those that open it themselves run in a process below.

    A test without the mark `kernels`, and every process below it, is told of a target that there
    is not: it fails where it opens PoCL, so that `make kernels` leaves no such test out.
    """
    marked = item.get_closest_marker("kernels") is not None
    target = POCL_TARGET if marked else "nothing: no mark `kernels`"
    if target is None:
        os.environ.pop(probed_target.SETTING, None)
    else:
        os.environ[probed_target.SETTING] = target
    if not runs_alone(item):
        return None
    run_alone(item, nextitem)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """The agent's code adopts orphans for as long as its process lives; this process lives on.

    Else what later tests leave behind is this process's child, where it neither sees that its
    own parent is gone nor is ever waited for.
    """
    yield
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked ``needs("tool", install="...")`` where the tool is not installed."""
    for marker in item.iter_markers("needs"):
        tool = marker.args[0]
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}: {marker.kwargs['install']}")


def skipped_tests(config: pytest.Config) -> list[str]:
    """The reports of skipped tests; under xdist the controller has all of them."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if not IN_CI or reporter is None or hasattr(config, "workerinput"):
        return []
    return [report.nodeid for report in reporter.stats.get("skipped", [])]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if skipped_tests(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if config.getoption("--record-seconds"):
        stats = terminalreporter.stats.values()
        record(r for found in stats for r in found if isinstance(r, pytest.TestReport))
    skipped = skipped_tests(config)
    if not skipped:
        return
    terminalreporter.section("skipped in CI, where nothing may be", red=True)
    for nodeid in skipped:
        terminalreporter.line(nodeid)
