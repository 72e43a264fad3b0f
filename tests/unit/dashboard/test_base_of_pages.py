"""What all pages have in common: their policy, their files, who gets in."""

from __future__ import annotations

import hashlib
import json
import re
from importlib.resources import files
from pathlib import Path

import pytest

from api.dashboard.rendering import PAGE_POLICY
from api.dashboard.sign_in import local_path
from api.dashboard.static_files import asset_url, static_files
from api.settings import Settings
from api.sign_in_codes import SignInCodes
from tests.unit.api.conftest import Service, service

__all__ = ["service"]

HTML = {"Accept": "text/html"}
FORM = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}


def test_files_of_others_are_those_listed_with_licence_and_hash():
    folder = files("api.dashboard").joinpath("static", "vendor")
    listed: dict[str, str] = {}
    for package in json.loads(folder.joinpath("MANIFEST.json").read_text())["packages"]:
        assert package["licence"] and package["licence_file"] in package["files"]
        listed |= package["files"]
    for name, digest in listed.items():
        assert hashlib.sha256(folder.joinpath(name).read_bytes()).hexdigest() == digest, name
    ours = {"MANIFEST.json", "echarts.esm.min.d.ts"}
    assert {entry.name for entry in folder.iterdir()} == {*listed, *ours}


def test_no_script_and_no_style_of_ours_stands_in_a_page_or_names_another_origin():
    for entry in files("api.dashboard").joinpath("templates").iterdir():
        text = entry.read_text()
        inline = re.findall(
            r"<script(?![^>]*(?:src=|application/json))|<style|\sstyle=|\son\w+=", text
        )
        assert not inline, entry.name
        assert not re.search(r"(?:src|href|action)=[\"'](?:https?:)?//", text), entry.name
    for name, file in static_files().items():
        if name.endswith(".css"):
            assert b"url(" not in file.content and b"@import" not in file.content, name


def test_pages_allow_nothing_but_files_of_this_origin(service: Service):
    answer = service.admin.get("/", headers=HTML)
    assert answer.status_code == 200
    assert answer.headers["content-security-policy"] == PAGE_POLICY
    assert "unsafe" not in PAGE_POLICY and "default-src 'none'" in PAGE_POLICY
    assert answer.headers["x-frame-options"] == "DENY"


def test_a_page_without_a_session_leads_to_the_form_and_back(service: Service):
    answer = service.client(None).get("/devices?state=active", headers=HTML)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/sign-in?next=%2Fdevices%3Fstate%3Dactive"


def test_pages_are_for_people_not_for_devices(service: Service):
    answer = service.device.get("/", headers=HTML)
    assert answer.status_code == 403
    assert "does not reach" in answer.text


def test_what_is_not_there_is_a_page_for_people_and_a_problem_for_programs(service: Service):
    page = service.admin.get("/nowhere", headers=HTML)
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    for path, headers in (("/nowhere", {}), ("/v1/nowhere", HTML)):
        answer = service.admin.get(path, headers=headers)
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_versioned_file_is_kept_for_ever_and_an_old_version_is_asked_for_again(
    service: Service,
):
    path = asset_url("base.css")
    answer = service.client(None).get(path)
    assert "immutable" in answer.headers["cache-control"]
    older = service.client(None).get(path.replace(path.split("/")[2], "0" * 16))
    assert older.headers["cache-control"] == "no-cache" and older.text == answer.text
    unchanged = {"If-None-Match": answer.headers["etag"]}
    assert service.client(None).get(path, headers=unchanged).status_code == 304
    assert service.client(None).get("/static/0/..%2fbase.html").status_code == 404


def test_a_token_in_a_form_becomes_a_cookie_that_no_script_reads(service: Service):
    body = f"token={service.tokens['admin']}&next=%2Fdevices"
    answer = service.client(None).post("/sign-in", content=body, headers=FORM)
    assert (answer.status_code, answer.headers["location"]) == (303, "/devices")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie


@pytest.mark.parametrize("site", [{"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil"}, {}])
def test_a_form_of_another_site_signs_nobody_in_or_out(service: Service, site: dict[str, str]):
    for path in ("/sign-in", "/sign-out"):
        headers = {"Content-Type": FORM["Content-Type"], **site}
        body = f"token={service.tokens['admin']}"
        answer = service.client(None).post(path, content=body, headers=headers)
        assert answer.status_code == 403 and "set-cookie" not in answer.headers


def test_a_device_does_not_sign_in(service: Service):
    body = f"token={service.tokens['own device']}"
    assert service.client(None).post("/sign-in", content=body, headers=FORM).status_code == 403


def test_who_guesses_tokens_or_codes_has_to_wait(tmp_path: Path):
    guessed = Service(tmp_path, Settings(failed_logins_per_minute=2, token_cache_s=0.0))
    try:
        client = guessed.client(None)
        for body in ("token=nm_nobody.0123456789abcdef0123", "code=0123456789"):
            assert client.post("/sign-in", content=body, headers=FORM).status_code == 401
        again = client.post("/sign-in", content="code=0123456789", headers=FORM)
        assert again.status_code == 429
        # Whoever has a good link is let in: who shares the address may have guessed.
        valid = f"code={guessed.app.state.services.sign_in_codes.make()}"
        assert client.post("/sign-in", content=valid, headers=FORM).status_code == 303
    finally:
        guessed.close()


def test_a_link_signs_in_once(service: Service):
    code = service.app.state.services.sign_in_codes.make()
    shown = service.client(None).get(f"/sign-in?code={code}")
    assert shown.status_code == 200 and "set-cookie" not in shown.headers
    answer = service.client(None).post("/sign-in", content=f"code={code}", headers=FORM)
    assert answer.status_code == 303 and "nestmap_session=nm_" in answer.headers["set-cookie"]
    again = service.client(None).post("/sign-in", content=f"code={code}", headers=FORM)
    assert again.status_code == 401 and "set-cookie" not in again.headers


def test_a_code_is_too_old_in_the_end():
    now = 0.0
    codes = SignInCodes(lambda: now)
    code, other = codes.make(10.0), codes.make(20.0)
    now = 11.0
    assert not codes.use(code)
    assert codes.use(other)


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/runs/run_1?x=linear", "/runs/run_1?x=linear"), ("//evil.example/", "/"),
        ("https://evil.example/", "/"), ("/\\evil.example", "/"), ("javascript:alert(1)", "/"),
        ("/a\r\nSet-Cookie: b=c", "/"),
    ],
)  # fmt: skip
def test_the_form_leads_nowhere_else(target, path):
    assert local_path(target) == path
