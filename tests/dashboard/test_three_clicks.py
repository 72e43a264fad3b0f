"""Somebody who never saw the tool: from the overview to the fastest kernel within a budget of
memory, its source and the reason it is valid."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import Dashboard

pytestmark = pytest.mark.needs("chromium", install="apt-get install chromium")

#: Counts what a person does, over all pages of the tab: keys on a link count as its click.
COUNT_CLICKS = """
addEventListener("click", (event) => {
  if (event.isTrusted && event.target.closest("a, button, summary, input[type=checkbox], select"))
    sessionStorage.setItem("clicks", Number(sessionStorage.getItem("clicks") ?? 0) + 1);
}, true);
"""


def test_three_clicks_lead_to_the_fastest_kernel_within_a_budget_its_source_and_why_it_is_valid(
    page: Page, dashboard: Dashboard
):
    with dashboard.client() as client:
        whole = client.get("/v1/fronts", params={"run": dashboard.run_id}).json()
        # Less than the fastest of all needs, where the front has more than that one.
        most = max(whole["points"][-1]["memory_bytes"], whole["points"][0]["memory_bytes"] - 1)
        bounds = {"run": dashboard.run_id, "max_memory_bytes": most}
        wanted = client.get("/v1/fronts", params=bounds).json()["fastest"]["candidate"]
        candidate = client.get(f"/v1/candidates/{wanted}").json()
        source = client.get(f"/v1/artifacts/{candidate['source_hash']}").text
    page.add_init_script(COUNT_CLICKS)
    page.goto(dashboard.url)
    card = page.locator(".fronts article").filter(
        has=page.locator(f'a[href="/runs/{dashboard.run_id}"]')
    )
    card.get_by_role("heading").get_by_role("link").click()

    page.wait_for_selector("[data-complete]")
    page.get_by_role("textbox", name="Fastest kernel within").fill(f"{most}")
    page.get_by_role("link", name="Open the kernel").click()

    expect(page.locator("#candidate-id")).to_have_text(wanted)
    page.get_by_role("link", name="Why it is valid").click()
    expect(page.locator("#valid-title")).to_be_in_viewport()
    expect(page.locator("#valid")).to_contain_text("constraints hold for this mapping")
    expect(page.locator("#valid .reasons li").first).to_be_visible()
    assert page.evaluate("() => Number(sessionStorage.getItem('clicks'))") == 3
    # The source stands open on the same page: no further click.
    expect(page.locator("#kernel-source")).to_be_visible()
    assert page.locator("#kernel-source").text_content() == source
