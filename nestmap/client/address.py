"""Where the service is, and the token that opens it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from mapper.errors import InputError, Problem
from mapper.plain_files import NotPlainFile, read_plain_file

URL_VARIABLE = "NESTMAP_URL"
TOKEN_VARIABLE = "NESTMAP_TOKEN"
TOKEN_FILE_VARIABLE = "NESTMAP_TOKEN_FILE"
_MOST_URL = 2_000
_MOST_TOKEN = 1_000
_TOKEN = re.compile(r"[\x21-\x7e]{1,1000}")


class Token:
    """A token that shows itself to nobody but :meth:`header`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        """InputError, without the text, for what cannot stand in a header."""
        if not _TOKEN.fullmatch(text):
            message = "the token has characters that no token has, or is too long"
            raise InputError(Problem("token", message, f"{len(text)} characters", "nm_…"))
        self._text = text

    def header(self) -> str:
        """The value of ``Authorization``."""
        return f"Bearer {self._text}"

    def __repr__(self) -> str:
        return "Token(…)"

    def __reduce__(self) -> str:
        raise TypeError("a token is not written anywhere")


def base_url(text: str) -> str:
    """An http or https URL without a slash at its end.

    InputError for another scheme, no host, a user or password, a query, a fragment.
    """
    allowed = "http://HOST[:PORT][/PATH] or https://…"
    try:
        parts = urlsplit(text)
        port_is_read = parts.port is None or parts.port > 0
    except ValueError as error:
        raise InputError(Problem("url", "not a URL", str(error)[:100], allowed)) from None
    odd = len(text) > _MOST_URL or not text.isprintable() or not port_is_read
    if odd or parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(Problem("url", "not the URL of a service", repr(text)[:100], allowed))
    if parts.username is not None or parts.password is not None:
        # It may be a password: it is not shown.
        raise InputError(Problem("url", "a user or password has no place in it", "", allowed))
    if parts.query or parts.fragment:
        found = repr(text)[:100]
        raise InputError(Problem("url", "a query or fragment has no place in it", found, allowed))
    return text.rstrip("/")


def token_of(token: str | None = None, token_file: str | Path | None = None) -> Token | None:
    """The token given, or of a file, else of the environment; None where nothing says one.

    NESTMAP_TOKEN goes before NESTMAP_TOKEN_FILE. InputError for a file that cannot be read, or
    for both arguments.
    """
    if token is not None and token_file is not None:
        raise InputError(Problem("token", "a token and a file of one are given", "", "one of them"))
    if token is not None:
        return Token(token)
    if token_file is None and (text := os.environ.get(TOKEN_VARIABLE, "").strip()):
        return Token(text)
    name = token_file or os.environ.get(TOKEN_FILE_VARIABLE, "")
    return Token(_read(Path(name))) if name else None


def _read(path: Path) -> str:
    try:
        text = read_plain_file(path, _MOST_TOKEN).decode("ascii")
    except NotPlainFile as error:
        raise InputError(Problem("token-file", f"cannot be read: it {error}", str(path))) from None
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
        raise InputError(Problem("token-file", why, str(path))) from None
    except (UnicodeDecodeError, ValueError):
        raise InputError(Problem("token-file", "not a token", str(path), "nm_…")) from None
    return text.strip()
