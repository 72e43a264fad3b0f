"""Candidates beside each other: what differs in mapping, parameters, source and time."""

from __future__ import annotations

import csv
import io
import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.conftest import Dashboard, check_looks, open_context

pytestmark = pytest.mark.needs("chromium", install="apt-get install chromium")


@pytest.fixture(scope="module")
def two(dashboard: Dashboard) -> list[dict]:
    """Two candidates of one variant, as the API has them."""
    with dashboard.client() as client:
        filters = {"run": dashboard.run_id, "outcome": "timed"}
        measured = client.get("/v1/measurements", params=filters).json()["items"]
        variant = measured[0]["variant"]
        length = {
            one["candidate"]: len(client.get(f"/v1/artifacts/{one['source_hash']}").content)
            for one in measured
            if one["variant"] == variant
        }
        # The shortest sources: what differs is shown as a whole.
        chosen = sorted(length, key=lambda one: (length[one], one))[:2]
        return [client.get(f"/v1/candidates/{one}").json() for one in chosen]


def address(dashboard: Dashboard, candidates: list[dict]) -> str:
    return f"{dashboard.url}/compare?" + "&".join(f"c={one['id']}" for one in candidates)


def test_maps_and_parameters_that_differ_are_marked_and_no_others(
    page: Page, dashboard: Dashboard, two: list[dict]
):
    page.goto(address(dashboard, two))
    first, second = two
    marked = page.locator("#tree-table tr.differs th").all_text_contents()
    differing = {name for name, code in first["mapping"].items() if second["mapping"][name] != code}
    assert {text.strip() for text in marked} == differing
    expect(page.get_by_text(f"{len(differing)} maps differ")).to_be_visible()
    parameters = {
        name for name, value in first["parameters"].items() if second["parameters"][name] != value
    }
    shown = page.locator("#values-table tr.differs th").all_text_contents()
    found = {text.strip() for text in shown if "local size" not in text}
    assert found == parameters


def test_the_diff_turns_one_source_into_the_other(
    page: Page, dashboard: Dashboard, two: list[dict]
):
    page.goto(address(dashboard, two))
    with dashboard.client() as client:
        first, second = (
            client.get(f"/v1/artifacts/{one['source_hash']}").text.splitlines() for one in two
        )
    rows = page.evaluate(
        """() => [...document.querySelectorAll('table.diff tr:not(.gap)')].map(row => [
            row.className, Number(row.cells[0].textContent), Number(row.cells[1].textContent),
            row.cells[3].textContent])"""
    )
    assert {kind for kind, *_ in rows} == {"same", "added", "removed"}
    removed = {before for kind, before, _, _ in rows if kind == "removed"}
    added = {after: text for kind, _, after, text in rows if kind == "added"}
    kept = iter([line for number, line in enumerate(first, 1) if number not in removed])
    rebuilt = [
        added[number] if number in added else next(kept) for number in range(1, len(second) + 1)
    ]
    assert rebuilt == second


def test_times_are_those_of_the_api_here_and_in_the_file(
    page: Page, dashboard: Dashboard, two: list[dict]
):
    page.goto(address(dashboard, two))
    expect(page.locator("#times-table svg .median")).to_have_count(2)
    with page.expect_download() as started:
        page.locator("section", has_text="Times and memory").get_by_role(
            "button", name="CSV"
        ).click()
    rows = list(csv.DictReader(io.StringIO(started.value.path().read_text())))
    for row, one in zip(rows, two, strict=True):
        assert one["id"][:10] in row["Candidate"]
        with dashboard.client() as client:
            stored = client.get("/v1/measurements", params={"candidate": one["id"]}).json()
        assert float(row["Median"]) == pytest.approx(stored["items"][-1]["time_ms"])
    assert {row["Letter"] for row in rows} == {"A", "B"}


def test_candidates_are_added_and_left_out_by_the_address(
    page: Page, dashboard: Dashboard, two: list[dict]
):
    page.goto(f"{dashboard.url}/compare")
    page.get_by_label("Candidate id").fill(two[0]["id"])
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_text("Add another candidate to compare it with.")).to_be_visible()
    # "or by id" where the front has others to offer, "Candidate id" where it has none.
    page.get_by_label(re.compile("by id|Candidate id")).fill(two[1]["id"])
    page.get_by_role("button", name="Add").click()
    expect(page.locator("#times-table tbody tr")).to_have_count(2)
    choice = page.get_by_label("From the front of the run")
    if choice.locator("option").count() > 1:
        choice.select_option(index=1)
        page.get_by_role("button", name="Add").click()
        expect(page.locator("#times-table tbody tr")).to_have_count(3)
    page.get_by_role("link", name="leave out A").click()
    expect(page.locator(f'#times-table a[href="/candidates/{two[0]["id"]}"]')).to_have_count(0)


def test_too_many_and_unknown_candidates_are_refused_by_a_page(
    page: Page, dashboard: Dashboard, watched
):
    watched.expected = ("404", "422")
    answer = page.goto(f"{dashboard.url}/compare?c=nothing")
    assert answer is not None and answer.status == 422
    many = "&".join(f"c={digit * 64}" for digit in "01234")
    answer = page.goto(f"{dashboard.url}/compare?{many}")
    assert answer is not None and answer.status == 422
    expect(page.locator("main")).to_contain_text("at most 4")
    answer = page.goto(f"{dashboard.url}/compare?c={'0' * 64}")
    assert answer is not None and answer.status == 404


def test_a_page_without_scripts_compares_too(
    browser: Browser, dashboard: Dashboard, two: list[dict]
):
    with open_context(browser, dashboard, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(address(dashboard, two))
        expect(page.locator("table.diff tr.added").first).to_be_visible()
        expect(page.get_by_role("button", name="CSV")).to_have_count(0)


def test_the_page_looks_as_it_should(browser: Browser, dashboard: Dashboard, two: list[dict]):
    path = address(dashboard, two).removeprefix(dashboard.url)
    check_looks(browser, dashboard, path, "compare", "#tree-table")
