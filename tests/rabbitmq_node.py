"""A RabbitMQ node of one's own: on loopback, on free ports, in a folder that goes with it.

It needs Debian's package and none of its service: nothing of it runs or lies elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"
_START_S = 60.0
_STOP_S = 15.0


def free_port() -> int:
    """A port of loopback that nobody listens on at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class RabbitMqNode:
    """A node with its port mapper; a context manager. It keeps its data until it is closed.

    ``tls``: it serves :meth:`tls_url` as well, with a certificate that openssl makes.
    """

    def __init__(self, tls: bool = False) -> None:
        # Not pytest's folder: the names of Erlang's files grow long.
        self._folder = Path(tempfile.mkdtemp(prefix="nm-mq-"))
        self._folder.chmod(0o700)
        self._tls = tls
        self.port, self.tls_port = free_port(), free_port()
        self._epmd_port, self._dist_port = free_port(), free_port()
        self._epmd: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    @property
    def ca_file(self) -> Path:
        """The authority that signed the node's certificate, which is for 127.0.0.1 alone."""
        return self._folder / "ca.pem"

    def tls_url(self, host: str = "127.0.0.1") -> str:
        """Where clients connect to with TLS; at 127.0.0.2, too."""
        return f"amqps://guest:guest@{host}:{self.tls_port}//"

    def __enter__(self) -> RabbitMqNode:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start(self) -> None:
        """Start, or start again with the data that is there; waits until clients are served."""
        environment = self._environment()
        if self._tls and not self.ca_file.exists():
            self._sign()
        if self._epmd is None:
            self._epmd = subprocess.Popen(
                ["epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1"],
                env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        with (self._folder / "output").open("ab") as output:
            self._server = subprocess.Popen(
                [SERVER], env=environment, cwd=self._folder, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
        end = time.monotonic() + _START_S
        while not self._serves():
            if time.monotonic() > end or self._server.poll() is not None:
                said = (self._folder / "output").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"RabbitMQ did not start:\n{said}")
            time.sleep(0.1)

    def kill(self) -> None:
        """End the node as a power cut would; :meth:`start` brings it back."""
        self._end(self._server, signal.SIGKILL)
        self._server = None

    def close(self) -> None:
        """End everything and remove the data."""
        self._end(self._server, signal.SIGKILL)
        self._end(self._epmd, signal.SIGKILL)
        self._server = self._epmd = None
        shutil.rmtree(self._folder, ignore_errors=True)

    @staticmethod
    def _end(process: subprocess.Popen[bytes] | None, how: signal.Signals) -> None:
        if process is None:
            return
        # The group: Erlang starts helpers, and a script stands before it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        process.wait(timeout=_STOP_S)

    def _serves(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                return bool(connection.recv(8))
        except OSError:
            return False

    def _sign(self) -> None:
        """An authority of a day, and a certificate by it."""
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        for options in (
            ("-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test authority"),
            (
                "-x509", *key, "-keyout", "node.key", "-out", "node.pem", "-subj", "/CN=node",
                "-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1",
                "-addext", "basicConstraints=critical,CA:FALSE",
            ),
        ):  # fmt: skip
            subprocess.run(
                ["openssl", "req", *options, "-days", "1"],
                cwd=self._folder, check=True, capture_output=True,
            )  # fmt: skip

    def _environment(self) -> dict[str, str]:
        folder = self._folder
        (folder / "enabled_plugins").write_text("[].\n")
        (folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\n"
            "log.console = false\n"
            "vm_memory_high_watermark.absolute = 512MB\n"
            "disk_free_limit.absolute = 16MB\n"
        )
        if self._tls:
            with (folder / "rabbitmq.conf").open("a") as configuration:
                configuration.write(
                    f"listeners.ssl.1 = 127.0.0.1:{self.tls_port}\n"
                    f"listeners.ssl.2 = 127.0.0.2:{self.tls_port}\n"
                    f"ssl_options.certfile = {folder / 'node.pem'}\n"
                    f"ssl_options.keyfile = {folder / 'node.key'}\n"
                )
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            # Few schedulers: tests share two cores.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 "
            "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_NODENAME": f"nm{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
        }
