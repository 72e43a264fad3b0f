"""The agent's command line: ``nestmap worker`` and ``python -m worker.agent``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from worker.agent import AGENT_VERSION
from worker.agent.agent import Agent
from worker.agent.announcing import Announcer, printable
from worker.agent.bench import Bench
from worker.agent.executor_process import EXECUTOR
from worker.agent.failures import AgentExit, AgentFailure
from worker.agent.notifying import ServiceManager
from worker.agent.process_tree import end_with_parent
from worker.agent.settings import Settings, default_state, secret
from worker.agent.state_folder import StateFolder
from worker.agent.waiting import Waiter

_EPILOG = """\
Exit codes: 0 ended as asked; 1 --once found no job; 2 options; 3 the device is not there, is
quarantined or, with --require-sandbox, cannot be shut in; 4 the state folder is in use or cannot
be written; 5 the server cannot be reached (--once) or does not speak this protocol; 70 a fault of
nestmap; 77 the server refuses the token.
"""


def parser() -> argparse.ArgumentParser:
    """The options."""
    found = argparse.ArgumentParser(
        prog="nestmap worker",
        description="Serve a measuring device to a nestmap server: lease jobs, measure, report.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = found.add_argument
    add("--url", default=os.environ.get("NESTMAP_URL"), help="the server (or NESTMAP_URL)")
    add("--token", help="this device's token; a file is safer (or NESTMAP_TOKEN)")
    add("--token-file", type=Path, help="file with the token (or NESTMAP_TOKEN_FILE)")
    add("--enrol", metavar="CODE", help="one-time code, where there is no token yet")
    add("--enrol-file", type=Path, help="file with the code (or NESTMAP_ENROL_FILE)")
    add("--id", default=os.environ.get("NESTMAP_DEVICE_ID", ""), metavar="DEVICE_ID",
        help="the device that a token is for, unless the token's file names it too")  # fmt: skip
    add("--name", default="", help="name to enrol under (default: the host's)")
    add("--device", default=os.environ.get("NESTMAP_DEVICE", "host"), metavar="SPEC",
        help="host, pocl, opencl:<platform>/<device>, opencl:<index>, null (invented times) or "
        "recorded:<file> (default: host)")  # fmt: skip
    add("--state", type=Path, default=None, help="folder for token, journal and artifacts")
    add("--ca-file", help="certificate authority of the server, PEM")
    add("--once", action="store_true", help="measure one job if there is one, then end")
    add("--max-jobs", type=_positive, metavar="N", help="end after so many jobs")
    add("--json", action="store_true", help="print events as JSON, one a line")
    add("--wait", type=_long_poll, default=50, metavar="S", help="long poll, 0 to 50 s")
    add("--stop-grace", type=float, default=90.0, metavar="S",
        help="on SIGTERM, how long the job under way may go on (default: 90)")  # fmt: skip
    add("--cache-mb", type=_positive, default=512, metavar="MB",
        help="disk that artifacts may take (default: 512)")  # fmt: skip
    add("--reload-command", default="", metavar="CMD",
        help="run once when the golden kernel fails: reload or reset the driver")  # fmt: skip
    add("--reboot-command", default="", metavar="CMD",
        help="run on quarantine, at most 3 times a day")  # fmt: skip
    add("--reprobe", type=float, default=300.0, metavar="S",
        help="seconds between probes of a quarantined device (default: 300)")  # fmt: skip
    add("--nice", type=int, default=5, choices=range(20), metavar="N",
        help="niceness of the measuring process (default: 5)")  # fmt: skip
    add(
        "--memory-mb",
        type=_positive,
        metavar="MB",
        help="what the measuring process may allocate (default: three quarters of the machine's)",
    )
    add("--with-network", action="store_true",
        help="leave the measuring process its network")  # fmt: skip
    add("--sandbox", choices=("auto", "namespaces", "landlock", "limits"), default="auto",
        help="how the measuring process is shut in (default: auto, what works)")  # fmt: skip
    add("--sandbox-path", action="append", default=[], metavar="PATH",
        help="what else it may read: folders of a driver; may be repeated")  # fmt: skip
    add("--require-sandbox", action="store_true",
        help="do not serve where files, network or system calls stay open")  # fmt: skip
    add("--record", metavar="FILE", help="add outcomes to a file for recorded:<file>")
    add("--broker", metavar="URL", default=None,
        help="amqp(s)://…: hear of jobs through RabbitMQ instead of long polls "
        "(or NESTMAP_BROKER; needs the extra `cluster`)")  # fmt: skip
    add("--broker-file", type=Path, help="file with the broker's URL (or NESTMAP_BROKER_FILE)")
    add("--end-with-parent", type=int, nargs="?", const=0, metavar="PID",
        help="end when the process that started this one does; its number, where that may have "
        "ended already, or may be 1")  # fmt: skip
    add("--version", action="version", version=f"nestmap agent {AGENT_VERSION}")
    return found


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _long_poll(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 50:
        raise argparse.ArgumentTypeError("must be 0 to 50")
    return value


def settings_of(options: argparse.Namespace) -> Settings:
    """What the options say; raises AgentFailure."""
    if not options.url:
        raise AgentFailure("--url: the server's address is missing", AgentExit.BAD_OPTIONS)
    broker = secret(options.broker, options.broker_file, "NESTMAP_BROKER")
    if broker and (options.once or options.max_jobs is not None):
        raise AgentFailure(
            "--broker: a board that hears bells ends when it is told to, without --once or "
            "--max-jobs",
            AgentExit.BAD_OPTIONS,
        )
    executor_options = [f"--nice={options.nice}"]
    if options.memory_mb is not None:
        executor_options.append(f"--memory-mb={options.memory_mb}")
    executor_options.append(f"--sandbox={options.sandbox}")
    executor_options += [f"--sandbox-path={path}" for path in options.sandbox_path]
    if options.require_sandbox:
        executor_options.append("--require-sandbox")
    if options.with_network:
        executor_options.append("--with-network")
    if options.reload_command:
        executor_options.append(f"--reload-command={options.reload_command}")
    if options.record:
        executor_options.append(f"--record={options.record}")
    # A token file may name its device too: "dev_… nm_…".
    device_id, _, token = secret(options.token, options.token_file, "NESTMAP_TOKEN").rpartition(" ")
    return Settings(
        url=options.url.rstrip("/"),
        state=options.state or default_state(),
        token=token,
        enrolment_code=secret(options.enrol, options.enrol_file, "NESTMAP_ENROL"),
        device_id=options.id or device_id.strip(),
        name=options.name,
        device=options.device,
        ca_file=options.ca_file,
        once=options.once,
        max_jobs=options.max_jobs,
        wait_s=options.wait,
        stop_grace_s=options.stop_grace,
        cache_bytes=options.cache_mb * 1024 * 1024,
        reboot_command=options.reboot_command,
        reprobe_s=options.reprobe,
        broker=broker,
        executor_options=tuple(executor_options),
    )


def main(arguments: Sequence[str] | None = None, executor_module: str = EXECUTOR) -> int:
    """Run the agent; the exit code says how it ended. ``executor_module`` is what measures."""
    options = parser().parse_args(arguments)
    announcer = Announcer(options.json)
    service = ServiceManager()
    try:
        settings = settings_of(options)
        with StateFolder(settings.state) as state, Waiter(service.pulse) as waiter:
            bench = Bench(
                (f"--device={settings.device}", *settings.executor_options),
                state.path,
                waiter,
                announcer,
                executor_module,
            )
            agent = Agent(settings, state, waiter, announcer, service, bench)
            agent.handle_signals()
            parent = options.end_with_parent
            if parent is not None and not end_with_parent(parent):
                raise AgentFailure("--end-with-parent: the parent has ended", AgentExit.BAD_OPTIONS)
            if settings.broker:
                # Loads Celery, which boards that poll need not have.
                from worker.broker import serve_bells

                announcer.take_stdout()
                return serve_bells(settings, agent)
            return agent.run()
    except AgentFailure as failure:
        if options.json:
            announcer.say("failed", str(failure), exit_code=int(failure.exit_code))
        else:
            print(f"nestmap worker: {printable(str(failure))}", file=sys.stderr)
        return failure.exit_code
