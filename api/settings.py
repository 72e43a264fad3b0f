"""Settings of the service, from the environment: ``NESTMAP_<NAME>``.

Any of them may stand in a file instead, named by ``NESTMAP_<NAME>_FILE``, as secrets of
containers are. A database URL may hold a password, so that ``store`` is never shown.
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from mapper.plain_files import NotPlainFile, read_plain_file

MAX_SECRET_BYTES = 64 * 1024
PREFIX = "NESTMAP_"


class Settings(BaseSettings):
    """What an operator may change; the defaults are for one host on loopback."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

    store: SecretStr = SecretStr("nestmap.sqlite3")
    """An SQLite file or a database URL."""

    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$")
    metrics_open: bool = False
    """Whether /metrics answers without a token, for a scraper on a private network."""
    docs_open: bool = True
    """Whether /docs and /openapi.json are served; they hold nothing secret."""
    secure_cookies: bool = False
    """Set it behind TLS: the dashboard's cookie is then never sent over plain HTTP."""

    body_bytes: int = Field(default=2**20, ge=1024, le=64 * 2**20)
    """Most bytes of a request's body."""
    body_timeout_s: float = Field(default=20.0, gt=0, le=600)
    """Seconds in which a body has to arrive, however slowly it is sent."""

    max_connections: int = Field(default=16_384, ge=16, le=1_000_000)
    """Most connections open at once, and fewer where the process may not open as many files."""
    max_connections_each: int = Field(default=4096, ge=1, le=1_000_000)
    """The same from one address, and half of all at most; named proxies have no such bound."""
    head_timeout_s: float = Field(default=10.0, gt=0, le=600)
    """Seconds in which a connection has to send a request's head, however slowly."""
    unread_timeout_s: float = Field(default=300.0, gt=0, le=3600)
    """Seconds after which an answer that nobody reads is cut off."""
    proxies: str = ""
    """Addresses and networks of proxies, with commas between them, whose X-Forwarded-For is
    believed; nobody's unless named."""

    database_threads: int = Field(default=8, ge=1, le=14)
    """Threads that talk to the database; the pool of connections has 15 at most."""
    default_wait_s: float = Field(default=10.0, ge=0, le=60)
    """Seconds that a request for long work waits, unless `Prefer: wait=N` says otherwise."""
    max_wait_s: float = Field(default=60.0, ge=0, le=600)
    solve_time_s: float = Field(default=300.0, gt=0, le=86_400)
    """Most seconds that one piece of solving may take."""

    lease_poll_s: float = Field(default=0.1, ge=0.01, le=60)
    """How often the queue is looked at for waiting boards, all of them in one query; once a second
    at most while PostgreSQL gives notice of new work."""
    max_long_poll_s: float = Field(default=50.0, ge=0, le=300)
    sweep_s: float = Field(default=1.0, ge=0.05, le=60)
    """How often leases that ran out are ended."""
    event_poll_s: float = Field(default=1.0, ge=0.02, le=60)
    event_heartbeat_s: float = Field(default=15.0, ge=0.05, le=300)
    """How often an open event stream gets a comment, so that proxies keep it open."""
    max_streams: int = Field(default=200, ge=1, le=100_000)
    """Most event streams, exports and streams of mappings open at once."""
    max_streams_each: int = Field(default=20, ge=1, le=100_000)
    """The same of one token."""

    max_open_runs_each: int = Field(default=200, ge=1, le=1_000_000)
    """Most runs of one token that have not ended."""
    max_candidates_each: int = Field(default=1_000_000, ge=1, le=1_000_000_000)
    """Most candidates that the stored runs of one token may have: it makes no new run beyond
    them, and no run of it may ask for more."""

    max_stored_mb_each: int = Field(default=8192, ge=1, le=100_000_000)
    """Megabytes that one token may have stored: layers, programs, kernels, what its runs and
    operations were asked, answers of operations, and arrays and sources of its runs. Each counts
    4 KiB more. Beyond that nothing new is taken from it, and its open runs are finished."""
    unused_programs_days: float = Field(default=90.0, ge=1, le=36_500)
    """Days after which a posted layer or program is dropped that no study and no candidate refers
    to, and that nobody has posted or named by its id since."""

    solver_requests_per_minute: int = Field(default=600, ge=1, le=1_000_000)
    """Requests of one token that a solver has to work on before it is told to wait; of each
    process of the service."""
    failed_logins_per_minute: int = Field(default=30, ge=1, le=100_000)
    """Failed authentications from one address before it is told to wait."""
    token_cache_s: float = Field(default=2.0, ge=0, le=60)
    """How long a verified token is not looked up again; this process forgets it at once when
    it is revoked here, others after this time."""

    telemetry: bool = False
    """Traces by OpenTelemetry, to where OTEL_EXPORTER_OTLP_ENDPOINT says (extra `telemetry`)."""

    @property
    def most_stored_bytes_each(self) -> int:
        """``max_stored_mb_each`` in bytes."""
        return self.max_stored_mb_each << 20

    @field_validator("proxies")
    @classmethod
    def _are_networks(cls, text: str) -> str:
        for part in filter(None, map(str.strip, text.split(","))):
            ipaddress.ip_network(part, strict=False)
        return text

    def proxy_networks(self) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
        """``proxies``, read."""
        parts = filter(None, map(str.strip, self.proxies.split(",")))
        return tuple(ipaddress.ip_network(part, strict=False) for part in parts)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments first, then the environment, then files that the environment names."""
        return init_settings, env_settings, _NamedFiles(settings_cls)


class _NamedFiles(PydanticBaseSettingsSource):
    """``NESTMAP_STORE_FILE=/run/secrets/store_url`` gives ``store`` that file's text."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        variable = f"{PREFIX}{field_name.upper()}_FILE"
        name = os.environ.get(variable)
        if not name:
            return None, field_name, False
        path = Path(name)
        try:
            text = read_plain_file(path, MAX_SECRET_BYTES).decode("utf-8")
            return text.strip(), field_name, False
        except NotPlainFile as error:
            raise ValueError(f"{variable}: {name} {error}") from None
        except OSError as error:
            raise ValueError(f"{variable}: {name} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ValueError(f"{variable}: {name} is not UTF-8 text") from None

    def __call__(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, field in self.settings_cls.model_fields.items():
            value, key, _ = self.get_field_value(field, name)
            if value is not None:
                found[key] = value
        return found
