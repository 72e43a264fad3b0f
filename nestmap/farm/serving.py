"""``nestmap serve``: the service put together, in one process and what it starts.

Store, solver children, HTTP API, the embedded runner (or the bells of a broker) and one local
worker start in this order and stop in the reverse one; a signal stops everything, whatever it is
doing.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import ipaddress
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from api.app import create_app
from api.connections import bounded_config, note_faults_seldom
from api.observing import service_logger
from api.settings import Settings
from api.solver_pool import PoolSettings, SolverPool
from db.engine import address_of
from db.farm.farm import Farm
from db.farm.states import BoardState, JobKind, Scope
from mapper.errors import InputError, Problem, StoreError
from nestmap.farm.embedded import EmbeddedRunner
from nestmap.farm.local_worker import LocalWorker
from nestmap.open_files import allow_open_files

TOKEN_FILE_SUFFIX = ".admin-token"
_BACKLOG = 2048
#: Allocations before a collection of the youngest, and how many of these before the older ones.
_COLLECT = (20_000, 20, 20)
#: Requests under way get so long at the end; long polls and streams are told to end before.
_GRACE_S = 5
#: Proposals under way at once, each of another owner.
_PROPOSALS = 3
#: Seconds between two requests to runners to end.
_AGAIN_S = 1.0
#: So long the local worker may take to open its device; it may come later, too.
_WORKER_S = 15.0

#: ``said(event, text, **fields)``: what happens, for people and for programs.
Said = Callable[..., None]


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What ``nestmap serve`` was asked for. ``worker_device`` None: no local worker.

    ``share_port``: others of this user's processes may listen at the same address, and new
    connections are dealt out to all of them.
    """

    host: str = "127.0.0.1"
    port: int = 8787
    store: str = "nestmap.sqlite3"
    allow_remote: bool = False
    worker_device: str | None = "host"
    solvers: int = 2
    broker: str = ""
    share_port: bool = False


def serve(options: ServeOptions, settings: Settings, said: Said) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises InputError for an address that cannot be had or must not be, StoreError.
    """
    allow_open_files()
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(contextlib.closing(_listener(options)))
        said("starting", "opening the store")
        _refuse_lost(options.store, None)
        farm = stack.enter_context(
            Farm.open(options.store, connections=settings.database_threads + 6)
        )
        _refuse_lost(options.store, farm)
        _refuse_remote(options, farm)
        _first_token(farm, options.store, said)
        asyncio.run(_serve(options, settings, farm, listener, said))
    said("stopped", "everything has ended")


async def _serve(
    options: ServeOptions, settings: Settings, farm: Farm, listener: socket.socket, said: Said
) -> None:
    stopping = asyncio.Event()
    with _signals(stopping):
        more = "" if options.broker else " and one for the proposals of runs"
        said("starting", f"starting {options.solvers} solver processes{more}")
        pool_settings = PoolSettings(children=options.solvers)
        async with SolverPool(pool_settings) as pool, _solving(options, farm, pool, said) as ring:
            logger = service_logger(settings.log_level)
            app = create_app(settings, farm, pool, ring=ring, logger=logger)
            _collect_seldom()
            note_faults_seldom(asyncio.get_running_loop(), logger)
            config = bounded_config(
                app, settings, logger,
                lifespan="on", timeout_graceful_shutdown=_GRACE_S, backlog=_BACKLOG,
            )  # fmt: skip
            async with _http(config, app, listener, stopping):
                url = _url(options.host, listener)
                said("listening", f"the API is at {url}/v1, its pages at {url}", url=url)
                if _is_loopback(options.host):
                    _invite(app, url, said)
                async with _local_worker(options, farm, url, said):
                    said("ready", "ready; Ctrl-C stops everything")
                    await stopping.wait()
                    said("stopping", "stopping")


def _collect_seldom() -> None:
    """Leave what is loaded to no collection of garbage, and look for it less often.

    Modules and statements are some hundred thousand objects that stay. To walk them all, again and
    again while a thousand boards come and go, took a fifth of the time and stopped every answer
    meanwhile.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT)


@contextlib.contextmanager
def _signals(stopping: asyncio.Event) -> Iterator[None]:
    """SIGINT and SIGTERM set the event; a second one changes nothing."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


class _Server(uvicorn.Server):
    """Uvicorn without signal handlers of its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to whoever put the service together."""
        yield


@contextlib.asynccontextmanager
async def _http(
    config: uvicorn.Config, app: FastAPI, listener: socket.socket, stopping: asyncio.Event
) -> AsyncIterator[None]:
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    # A server that ends by itself must not leave the rest waiting for nobody.
    serving.add_done_callback(lambda done: stopping.set())
    try:
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        yield
    finally:
        app.state.services.stop()
        server.should_exit = True
        await serving


@contextlib.asynccontextmanager
async def _solving(
    options: ServeOptions, farm: Farm, pool: SolverPool, said: Said
) -> AsyncIterator[Any]:
    """Whoever works on propose and solve jobs; what is given rings for it."""
    if options.broker:
        # Loads Celery, which a service without a broker need not have.
        from nestmap.farm.bell_ringer import BellRinger

        with BellRinger(options.broker, lambda text: said("broker", text)) as ringer:
            yield ringer.ring
        return

    def told(job: str, how: str) -> None:
        _told(said, job, how)

    # A child of their own: runs go on whatever people ask. Of each owner one is under way, and
    # who waits for another's gets a child that is started for that.
    settings = PoolSettings(children=1, most_extra=_PROPOSALS - 1)
    async with SolverPool(settings) as proposals:
        runners = (
            EmbeddedRunner(
                farm,
                proposals,
                kinds=(JobKind.PROPOSE,),
                at_once=_PROPOSALS,
                one_each=True,
                told=told,
            ),
            EmbeddedRunner(farm, pool, kinds=(JobKind.SOLVE,), told=told),
        )
        running = [asyncio.create_task(runner.run()) for runner in runners]

        def ring(waiting: object = None) -> None:
            for runner in runners:
                runner.ring(waiting)

        try:
            yield ring
        finally:
            pending = set(running)
            while pending:
                # Once more where a child died at that moment and its end was what was heard of.
                for task in pending:
                    task.cancel()
                _, pending = await asyncio.wait(pending, timeout=_AGAIN_S)


def _told(said: Said, job: str, how: str) -> None:
    if how != "done":
        said("solver-job", f"{job}: {how}", job=job)


@contextlib.asynccontextmanager
async def _local_worker(
    options: ServeOptions, farm: Farm, url: str, said: Said
) -> AsyncIterator[None]:
    if options.worker_device is None:
        yield
        return
    board_id, token = await asyncio.to_thread(_local_board, farm, options.worker_device)
    folder = _beside(options.store, ".worker")
    async with LocalWorker(url, board_id, token, options.worker_device, folder, said):
        said("worker", f"a worker on this host measures as {board_id}", device=board_id)
        said("starting", "waiting for the worker to open its device")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WORKER_S):
                while not (await asyncio.to_thread(farm.boards.board, board_id)).facts:
                    await asyncio.sleep(0.1)
        yield


def _local_board(farm: Farm, device: str) -> tuple[str, str]:
    """The board of this host, and a token for the worker that is about to start."""
    name = f"local {socket.gethostname()} {device}"[:200]
    board = farm.boards.find(name)
    if board is None:
        enrolled = farm.boards.add(name)
        return enrolled.board.id, enrolled.token.text
    if board.state is BoardState.DISABLED:
        raise InputError(Problem("worker", f"device {board.id} ({name}) is disabled", board.reason,
                                 "an active device, or --no-worker"))  # fmt: skip
    return board.id, farm.tokens.create(
        Scope.DEVICE, board_id=board.id, label=f"agent of {name}"[:200], lifetime_s=30 * 86_400.0
    ).text


def _invite(app: FastAPI, url: str, said: Said) -> None:
    """A link that signs a browser of this host in, once: whoever reads what is printed here
    could read the store, too."""
    link = f"{url}/sign-in?code={app.state.services.sign_in_codes.make()}"
    said("sign-in", f"the dashboard, signed in (once, within 15 minutes): {link}", url=link)


def _refuse_remote(options: ServeOptions, farm: Farm) -> None:
    """No open door by accident: other hosts are served where somebody has said so."""
    if _is_loopback(options.host) or options.allow_remote or farm.tokens.any_of(Scope.ADMIN):
        return
    raise InputError(
        Problem(
            "--host",
            "other hosts could reach a service that nobody has made a token for yet",
            options.host,
            "127.0.0.1, or --allow-remote",
            "serve on loopback first: it makes a token",
        )
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _refuse_lost(store: str, farm: Farm | None) -> None:
    """StoreError where a token file says that there was a store, and now there is none.

    ``farm`` None: before it is opened, which would make it.
    """
    url = address_of(store)
    tokens = _beside(store, TOKEN_FILE_SUFFIX)
    if not tokens.exists():
        return
    if farm is None:
        # A server says itself that it has no such database.
        lost = url.get_backend_name() == "sqlite" and not Path(url.database or "").exists()
    else:
        lost = not farm.tokens.any_ever()
    if lost:
        found = "no such file" if farm is None else "an empty store"
        raise StoreError(
            Problem(
                str(url.database),
                f"there was a store here, for which {tokens} holds a token",
                found,
                "that store",
                f"bring a backup back, or remove {tokens} to begin a new store",
            )
        )


def _first_token(farm: Farm, store: str, said: Said) -> None:
    """Make the token of a store's first start, show it once, and keep it in a private file."""
    if farm.tokens.any_of(Scope.ADMIN):
        return
    text = farm.tokens.create(Scope.ADMIN, label="made at the first start").text
    path = _beside(store, TOKEN_FILE_SUFFIX)
    try:
        kept = _write_private(path, text + "\n")
    except OSError as error:
        kept = f"{path} cannot be written ({error.strerror}): keep it yourself"
    said("token", f"admin token, shown this once: {text}\n  {kept}", token=text, file=str(path))


def _write_private(path: Path, text: str) -> str:
    """Write a file that only its owner reads, whatever was there before."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    return f"it is in {path}, too, which only you can read"


def _beside(store: str, suffix: str) -> Path:
    """A path next to an SQLite file; in the current folder where the store is a database of a
    server, with a name that is that database's alone."""
    url = address_of(store)
    if url.get_backend_name() == "sqlite":
        base = Path(url.database or "nestmap")
    else:
        place = f"{url.host or ''}:{url.port or ''}/{url.database or ''}"
        base = Path(f"nestmap-{hashlib.sha256(place.encode()).hexdigest()[:12]}")
    return base.with_name(base.name + suffix)


def _listener(options: ServeOptions) -> socket.socket:
    """A socket that listens; InputError where the address is taken or not ours."""
    try:
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        listener = socket.create_server(
            (options.host, options.port),
            family=family,
            backlog=_BACKLOG,
            reuse_port=options.share_port,
        )
        # Accepted sockets have it from here. asyncio sets it only where it made the listener, and
        # without it every answer on a kept connection waits 40 ms for an acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            Problem("--host, --port", f"cannot listen there: {reason}",
                    f"{options.host}:{options.port}", "a free port, or 0 for any")
        ) from None  # fmt: skip


def _url(host: str, listener: socket.socket) -> str:
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{listener.getsockname()[1]}"
