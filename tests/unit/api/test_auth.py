"""Tokens are verified, cached no longer than stated, and guessing is slowed down."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import Request

from api.auth import Access, Authenticator, Principal, RequestLimit, Role
from api.problems import ProblemError

GOOD = "nm_abc123.0123456789abcdef0123456789abcdef"
DEVICE = "nm_dev456.0123456789abcdef0123456789abcdef"
BAD = "nm_abc123.ffffffffffffffffffffffffffffffff"


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Tokens:
    """Verifies two tokens and counts how often it is asked."""

    def __init__(self):
        self.asked = 0
        self.known = {
            GOOD: Principal("abc123", Role.USER),
            DEVICE: Principal("dev456", Role.DEVICE, "dev_one"),
        }

    async def __call__(self, token):
        self.asked += 1
        return self.known.get(token)


@pytest.fixture
def tokens():
    return Tokens()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def authenticator(tokens, clock):
    return Authenticator(tokens, cache_s=2, failures_per_minute=3, clock=clock)


def request(token=None, *, method="GET", device=None, address="10.0.0.1", **headers):
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    encoded = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
    path = {} if device is None else {"device_id": device}
    return Request({"type": "http", "method": method, "headers": encoded, "path_params": path,
                    "client": (address, 1), "query_string": b"", "path": "/"})  # fmt: skip


def admit(authenticator, request, access=Access.USER):
    return asyncio.run(authenticator.admit(request, access))


def refusal(authenticator, request, access=Access.USER):
    with pytest.raises(ProblemError) as refused:
        admit(authenticator, request, access)
    return refused.value


def test_a_public_route_asks_for_nothing_and_looks_nothing_up(authenticator, tokens):
    assert admit(authenticator, request(BAD), Access.PUBLIC) is None
    assert tokens.asked == 0


def test_a_known_token_is_admitted(authenticator):
    assert admit(authenticator, request(GOOD)) == Principal("abc123", Role.USER)


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Basic dXNlcjpwYXNz", f"bearer  {BAD}x", "Bearer " + "x" * 5000,
     f"Bearer {GOOD} {GOOD}", "Bearer nm_.", "Bearer " + GOOD.replace("nm_", "NM_")],
)  # fmt: skip
def test_anything_but_one_valid_token_is_unauthenticated(authenticator, header):
    refused = refusal(authenticator, request(authorization=header))
    assert refused.type.slug == "unauthenticated"
    assert (refused.headers or {})["WWW-Authenticate"] == "Bearer"


def test_a_user_does_not_reach_what_admins_and_devices_reach(authenticator):
    for access in (Access.ADMIN, Access.OWN_DEVICE):
        assert refusal(authenticator, request(GOOD), access).type.slug == "forbidden"


def test_a_device_reaches_itself_and_no_other(authenticator):
    assert admit(authenticator, request(DEVICE, device="dev_one"), Access.OWN_DEVICE)
    other = request(DEVICE, device="dev_two")
    assert refusal(authenticator, other, Access.OWN_DEVICE).type.slug == "forbidden"
    assert refusal(authenticator, other, Access.USER_OR_DEVICE).type.slug == "forbidden"


def test_a_token_is_looked_up_again_when_its_time_is_over(authenticator, tokens, clock):
    for now in (0, 1, 1.9):
        clock.now = now
        admit(authenticator, request(GOOD))
    assert tokens.asked == 1
    clock.now = 2
    tokens.known.clear()
    assert refusal(authenticator, request(GOOD)).type.slug == "unauthenticated"


def test_a_revoked_token_is_forgotten_at_once(authenticator, tokens):
    admit(authenticator, request(GOOD))
    tokens.known.clear()
    authenticator.forget_tokens()
    assert refusal(authenticator, request(GOOD)).type.slug == "unauthenticated"


def test_too_many_failures_from_an_address_have_to_wait_a_minute(authenticator, clock):
    for _ in range(3):
        assert refusal(authenticator, request(BAD)).type.slug == "unauthenticated"
    refused = refusal(authenticator, request(BAD))
    assert refused.type.slug == "too-many-requests"
    assert 0 < int((refused.headers or {})["Retry-After"]) <= 61
    # A good token is let in all the same: it is looked up whoever failed before.
    assert admit(authenticator, request(GOOD))
    clock.now = 61
    assert refusal(authenticator, request(BAD)).type.slug == "unauthenticated"


def test_failures_shut_out_neither_other_addresses_nor_tokens_in_use(authenticator, clock):
    admit(authenticator, request(GOOD))
    for _ in range(3):
        refusal(authenticator, request(BAD))
    clock.now = 10
    assert admit(authenticator, request(GOOD))
    assert admit(authenticator, request(DEVICE, address="10.0.0.2"), Access.OWN_DEVICE)


def test_a_cookie_reads_but_writes_only_for_a_page_of_this_origin(authenticator):
    cookie = f"a=b; nestmap_session={GOOD}"
    assert admit(authenticator, request(cookie=cookie))
    post = {"method": "POST", "cookie": cookie, "host": "farm.local"}
    for more in ({}, {"origin": "https://evil.example"}, {"sec_fetch_site": "cross-site"},
                 {"origin": "http://[broken"}):  # fmt: skip
        assert refusal(authenticator, request(**post, **more)).type.slug == "forbidden"
    for more in ({"origin": "https://farm.local"}, {"sec_fetch_site": "same-origin"}):
        assert admit(authenticator, request(**post, **more))


def test_addresses_are_forgotten_before_they_fill_the_memory(authenticator):
    from api import auth

    for number in range(auth._MAX_ADDRESSES + 10):
        authenticator._failures.count(str(number))
    assert len(authenticator._failures._times) == auth._MAX_ADDRESSES


def test_a_token_that_asks_too_often_is_told_when_to_come_again(clock):
    limit = RequestLimit(30, clock)
    greedy, other = Principal("greedy", Role.USER), Principal("other", Role.USER)
    for _ in range(30):
        limit.count(greedy)
    with pytest.raises(ProblemError) as refused:
        limit.count(greedy)
    assert refused.value.type.slug == "too-many-requests"
    assert (refused.value.headers or {})["Retry-After"] == "2"
    limit.count(other)
    clock.now = 2.0
    limit.count(greedy)
    with pytest.raises(ProblemError):
        limit.count(greedy)
    clock.now = 3600.0  # a quiet hour saves up no more than a minute's
    for _ in range(30):
        limit.count(greedy)
    with pytest.raises(ProblemError):
        limit.count(greedy)


def test_tokens_that_are_remembered_are_bounded_in_number(clock, monkeypatch):
    monkeypatch.setattr("api.auth._MAX_CACHED", 10)
    limit = RequestLimit(1, clock)
    for number in range(1_000):
        limit.count(Principal(f"token{number}", Role.USER))
    assert len(limit._free) == 10
    with pytest.raises(ProblemError):
        limit.count(Principal("token999", Role.USER))
