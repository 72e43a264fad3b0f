"""Who sees pages: a token or a link becomes a session, and the token is nowhere else."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.dashboard.conftest import Dashboard, serious_faults

pytestmark = pytest.mark.needs("chromium", install="apt-get install chromium")


def test_a_token_signs_in_where_one_wanted_to_go_and_out_again(
    browser: Browser, dashboard: Dashboard
):
    context = browser.new_context()
    try:
        page = context.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{dashboard.url}/devices?state=active")
        assert page.url.startswith(f"{dashboard.url}/sign-in?next=")
        assert not serious_faults(page)
        page.get_by_label("Token").fill("nm_wrong.0123456789abcdef0123")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("unknown, revoked or expired")
        page.get_by_label("Token").fill(dashboard.token)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{dashboard.url}/devices?state=active")
        assert not any(dashboard.token in url for url in asked)
        cookie = next(one for one in context.cookies() if one.get("name") == "nestmap_session")
        assert cookie.get("httpOnly") and cookie.get("sameSite") == "Strict"
        assert page.evaluate("() => document.cookie") == ""

        page.get_by_role("button", name="Theme").click()
        expect(page.locator("html")).to_have_attribute("data-theme", "light")
        page.reload()
        expect(page.locator("html")).to_have_attribute("data-theme", "light")

        page.get_by_role("button", name="Sign out").click()
        page.goto(dashboard.url)
        assert "/sign-in" in page.url
    finally:
        context.close()
