"""Cursors, preferences, problems, settings and the assets of others."""

from __future__ import annotations

import base64
import hashlib
import json
import tomllib
from datetime import UTC, datetime
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.paging import decode_cursor, decode_keyset, encode_cursor, encode_keyset
from api.preference import preferred_wait_s
from api.problems import PROBLEM_TYPES, ProblemError, ProblemResponse, problem_of
from api.settings import Settings
from db.farm.records import Keyset
from mapper.errors import (
    DeviceError,
    InputError,
    LimitError,
    Problem,
    StoreError,
    UnsatisfiableError,
)


@given(st.integers(0, 10**16 - 1), st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True))
def test_a_cursor_gives_back_its_key(number, text):
    assert decode_cursor("runs", encode_cursor("runs", (number, text)), int, str) == (number, text)


@given(st.text() | st.binary().map(lambda b: base64.urlsafe_b64encode(b).decode()))
def test_no_text_makes_a_cursor_fail_but_as_invalid_input(text):
    try:
        decode_cursor("runs", text, int)
    except ProblemError as refusal:
        assert refusal.type.slug == "invalid-input"


@pytest.mark.parametrize(
    "text",
    ["runs", "runs.", "runs.1.2", "other.1", "runs.-1", "runs.1.0", "runs." + "9" * 17, "runs.x",
     "runs.\u0661", "", ".", "runs.1\n"],
)  # fmt: skip
def test_a_cursor_of_something_else_is_refused(text):
    with pytest.raises(ProblemError):
        decode_cursor("runs", text, int)


@pytest.mark.parametrize("name", ["a\0b", "", "a" * 65, "ä", "a b", "a\n"])
def test_a_cursor_holds_no_text_that_a_database_refuses(name):
    with pytest.raises(ProblemError):
        decode_cursor("runs", f"runs.{name}", str)


@given(st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)))
def test_a_cursor_by_time_gives_back_its_microsecond(created_at):
    cursor = encode_keyset("runs", created_at, "run_1")
    assert decode_keyset("runs", cursor) == Keyset(created_at, "run_1")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 10), ("", 10), ("wait=3", 3), ("respond-async, wait=0", 0), ("Wait = 7; x=1", 7),
        ('wait="5"', 5), ("wait=999999", 60), ("wait=-1", 10), ("wait=1e3", 10), ("await=3", 10),
    ],
)  # fmt: skip
def test_the_preferred_wait_is_bounded_and_nonsense_is_no_preference(header, seconds):
    assert preferred_wait_s(header, 10, 60) == seconds


@pytest.mark.parametrize(
    ("error", "slug"),
    [
        (InputError("x"), "invalid-input"), (DeviceError("x"), "invalid-input"),
        (LimitError("x"), "too-complex"), (UnsatisfiableError("x"), "unsatisfiable"),
        (StoreError("x"), "unavailable"),
    ],
)  # fmt: skip
def test_each_error_of_nestmap_has_its_problem_type(error, slug):
    assert problem_of(error).type.slug == slug


def test_what_the_database_said_does_not_reach_the_client():
    response = ProblemResponse(problem_of(StoreError("password for db.internal wrong")))
    assert b"internal" not in bytes(response.body).replace(b"/problems/internal", b"")
    assert b"password" not in bytes(response.body)


@pytest.mark.parametrize(
    ("path", "pointer"),
    [("layer.stride", "/layer/stride"), ("/mapping/28", "/mapping/28"), ("", ""),
     ("kernels/0/body", "/kernels/0/body"), ("layer", "/layer"), ("--pin 28", "/pin")],
)  # fmt: skip
def test_places_are_json_pointers(path, pointer):
    body = ProblemError("invalid-input", errors=[Problem(path, "m", "f", "a", "r")]).body()
    assert body["errors"] == [
        {"pointer": pointer, "message": "m", "found": "f", "allowed": "a", "remedy": "r"}
    ]


def test_a_problem_of_any_text_is_bounded_ascii_json():
    problems = [Problem("x" * 9000, "\ud800" * 9000)] * 1000
    response = ProblemResponse(ProblemError("invalid-input", "\udfff", problems), "req_1")
    body = bytes(response.body)
    assert len(body) < 2**20
    assert body.isascii()
    value = json.loads(body)
    assert (len(value["errors"]), value["errors_left_out"]) == (50, 950)


def test_types_of_problems_have_their_own_words():
    assert len({t.title for t in PROBLEM_TYPES.values()}) == len(PROBLEM_TYPES)
    assert all(400 <= t.status < 600 and t.description for t in PROBLEM_TYPES.values())


def test_a_setting_comes_from_the_environment_or_from_a_file_that_it_names(monkeypatch, tmp_path):
    secret = tmp_path / "store"
    secret.write_text("postgresql://user:password@host/db\n")
    monkeypatch.setenv("NESTMAP_STORE_FILE", str(secret))
    monkeypatch.setenv("NESTMAP_DATABASE_THREADS", "3")
    settings = Settings()
    assert settings.store.get_secret_value() == "postgresql://user:password@host/db"
    assert settings.database_threads == 3
    assert "password" not in repr(settings)


def test_the_environment_goes_before_the_file(monkeypatch, tmp_path):
    (tmp_path / "store").write_text("of the file")
    monkeypatch.setenv("NESTMAP_STORE_FILE", str(tmp_path / "store"))
    monkeypatch.setenv("NESTMAP_STORE", "of the environment")
    assert Settings().store.get_secret_value() == "of the environment"


def test_a_secret_file_that_is_not_there_stops_the_start(monkeypatch, tmp_path):
    monkeypatch.setenv("NESTMAP_STORE_FILE", str(tmp_path / "missing"))
    with pytest.raises(ValueError, match="NESTMAP_STORE_FILE"):
        Settings()


def test_the_assets_of_others_are_those_listed_with_licence_and_hash():
    folder = files("api.assets")
    listed = {}
    for package in tomllib.loads(folder.joinpath("ASSETS.toml").read_text())["package"]:
        assert package["licence"] and package["licence_file"] in package["files"]
        listed |= package["files"]
    for name, digest in listed.items():
        content = folder.joinpath(name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest, name
    there = {f"swagger-ui/{entry.name}" for entry in folder.joinpath("swagger-ui").iterdir()}
    assert there == {name for name in listed if name.startswith("swagger-ui/")}
