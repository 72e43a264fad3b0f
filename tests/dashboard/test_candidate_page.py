"""The page of a candidate: mapping, reasons, times, source, plan, prediction, measuring again."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.conftest import Dashboard, check_looks, open_context
from tests.dashboard.served import wait_for

pytestmark = pytest.mark.needs("chromium", install="apt-get install chromium")


@pytest.fixture(scope="module")
def fastest(dashboard: Dashboard) -> str:
    """The candidate with the least time."""
    with dashboard.client() as client:
        front = client.get("/v1/fronts", params={"run": dashboard.run_id}).json()
    return front["fastest"]["candidate"]


def measured_by_the_run(dashboard: Dashboard, candidate: str) -> dict:
    """The candidate's measurement in the shared run: other tests measure it again."""
    with dashboard.client() as client:
        filters = {"candidate": candidate, "run": dashboard.run_id}
        return client.get("/v1/measurements", params=filters).json()["items"][0]


def test_from_the_overview_three_clicks_lead_to_the_source_and_why_it_is_valid(
    page: Page, dashboard: Dashboard, fastest: str
):
    page.goto(dashboard.url)
    page.locator(f'a[href="/candidates/{fastest}"]').first.click()
    page.get_by_role("link", name="Why it is valid").click()
    reasons = page.locator("#valid .reasons")
    expect(reasons).to_contain_text("Private memory stays with one thread")
    expect(page.locator("#valid")).to_contain_text("constraints hold for this mapping")
    page.get_by_role("link", name="Source", exact=True).click()
    with dashboard.client() as client:
        candidate = client.get(f"/v1/candidates/{fastest}").json()
        source = client.get(f"/v1/artifacts/{candidate['source_hash']}").text
    # A long source comes in pieces.
    page.wait_for_load_state()
    expect(page.locator("#source")).to_contain_text("this release prints the same")
    assert page.locator("#kernel-source").text_content() == source


def test_the_mapping_is_drawn_on_the_nest_as_the_store_has_it(
    page: Page, dashboard: Dashboard, fastest: str
):
    page.goto(f"{dashboard.url}/candidates/{fastest}")
    with dashboard.client() as client:
        candidate = client.get(f"/v1/candidates/{fastest}").json()
    drawn = page.evaluate(
        """() => [...document.querySelectorAll('#mapping li')].map(li => {
            const row = li.querySelector(':scope > details > summary, :scope > .leaf');
            return [row.querySelector('.map-name').textContent.trim(),
                    row.querySelector('.code')?.firstChild.textContent ?? ''];
        })"""
    )
    codes = {name: code for name, code in drawn if code}
    assert set(codes) == set(candidate["mapping"])
    names = {0: "S", 1: "F", 2: "V2", 4: "V4", 8: "V8", 16: "V16"} | {
        base + d: f"{letter}{d}"
        for base, letter in ((10, "L"), (20, "W"), (30, "G"))
        for d in range(3)
    }
    assert codes == {name: names[code] for name, code in candidate["mapping"].items()}
    inner = page.locator("#mapping .nest .nest").first
    expect(inner).to_be_visible()
    page.get_by_role("button", name="Close all").click()
    expect(inner).to_be_hidden()
    page.get_by_role("button", name="Open all").click()
    expect(inner).to_be_visible()
    # Every part of the tree opens and closes by keyboard.
    page.locator("#mapping summary").first.focus()
    page.keyboard.press("Enter")
    expect(inner).to_be_hidden()


def test_trials_are_those_of_the_api_and_its_files(page: Page, dashboard: Dashboard, fastest: str):
    stored = measured_by_the_run(dashboard, fastest)
    page.goto(f"{dashboard.url}/candidates/{fastest}?measurement={stored['id']}")
    page.get_by_text("Trials in their order").click()
    expect(page.locator("#trials tbody tr")).to_have_count(len(stored["trials_ns"]))
    json_link = page.locator("#times a", has_text="JSON").get_attribute("href")
    csv_link = page.locator("#times a", has_text="CSV").get_attribute("href")
    answered = page.request.get(f"{dashboard.url}{json_link}")
    assert answered.json()["trials_ns"] == stored["trials_ns"]
    rows = list(csv.DictReader(io.StringIO(page.request.get(f"{dashboard.url}{csv_link}").text())))
    assert rows and {row["candidate"] for row in rows} == {fastest}
    with page.expect_download() as started:
        page.locator("#times button", has_text="PNG").click()
    assert started.value.suggested_filename == f"trials-{fastest[:10]}.png"
    assert started.value.path().read_bytes().startswith(b"\x89PNG")


def test_a_prediction_is_asked_for_in_place_and_by_its_address(
    page: Page, dashboard: Dashboard, fastest: str
):
    stored = measured_by_the_run(dashboard, fastest)
    page.goto(f"{dashboard.url}/candidates/{fastest}?measurement={stored['id']}")
    page.get_by_role("link", name="Predict", exact=True).click()
    expect(page.locator("#prediction-figure circle.own")).to_have_count(1)
    assert "predict=true" in page.url
    expect(page.locator("#prediction")).to_contain_text("Predicted / measured")
    with page.expect_download() as started:
        page.locator("#prediction button", has_text="CSV").click()
    rows = list(csv.reader(io.StringIO(started.value.path().read_text())))
    assert rows[0] == ["Candidate", "Predicted", "Measured"] and rows[1][0] == "this one"
    assert float(rows[1][2]) == pytest.approx(stored["time_ms"])


def test_one_click_measures_a_candidate_again(page: Page, dashboard: Dashboard, fastest: str):
    page.goto(f"{dashboard.url}/candidates/{fastest}")
    page.get_by_role("button", name="Measure again").click()
    notice = page.locator(".notice.good a", has_text="a run of its own")
    run_id = (notice.get_attribute("href") or "").removeprefix("/runs/")
    with dashboard.client() as client:
        run = wait_for(client, run_id)
        assert run["progress"]["measured"] == 1 and run["progress"]["best_candidate"] == fastest
        measured = client.get("/v1/measurements", params={"candidate": fastest}).json()["items"]
    page.get_by_role("link", name="look again").click()
    rows = page.locator('[aria-label="Measurements of this candidate"] tbody tr')
    expect(rows).to_have_count(len(measured))
    expect(page.locator("#times tr.chosen")).to_have_count(1)
    # The newest run is shown now; what is computed has the name that it had.
    expect(page.locator("h1")).to_have_text(re.compile(r"^small"))


def test_the_source_is_coloured_has_lines_with_links_and_is_copied_whole(
    browser: Browser, dashboard: Dashboard, fastest: str
):
    granted = ["clipboard-read", "clipboard-write"]
    with open_context(browser, dashboard, permissions=granted) as context:
        page = context.new_page()
        page.goto(f"{dashboard.url}/candidates/{fastest}#kernel-source-3")
        source = page.locator("#kernel-source").text_content() or ""
        expect(page.locator("#kernel-source-3")).to_be_in_viewport()
        assert page.locator("#kernel-source > .line").count() == len(source.splitlines())
        colours = page.evaluate(
            """() => new Set([...document.querySelectorAll("#kernel-source .line span")]
                .map((token) => getComputedStyle(token).color)).size"""
        )
        assert colours >= 3
        number = "(place) => getComputedStyle(document.getElementById(place), '::before').content"
        assert "counter" in page.evaluate(number, "kernel-source-3")
        page.locator("[data-copy=kernel-source]").click()
        expect(page.locator("[data-copy=kernel-source]")).to_have_text("Copied")
        assert page.evaluate("() => navigator.clipboard.readText()") == source


def test_another_site_cannot_measure_anything(page: Page, dashboard: Dashboard, fastest: str):
    address = f"{dashboard.url}/candidates/{fastest}/re-measure"
    form: dict[str, str | float | bool] = {"device": dashboard.device_id}
    with dashboard.client() as client:
        before = len(client.get("/v1/runs").json()["items"])
    refused = page.request.post(address, form=form, headers={"Origin": "https://elsewhere.example"})
    assert refused.status == 403
    with dashboard.client() as client:
        assert len(client.get("/v1/runs").json()["items"]) == before


def test_a_page_without_scripts_says_the_same(browser: Browser, dashboard: Dashboard, fastest: str):
    with open_context(browser, dashboard, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"{dashboard.url}/candidates/{fastest}")
        expect(page.locator("#valid .reasons li").first).to_be_visible()
        expect(page.locator("#mapping .nest .nest").first).to_be_visible()
        expect(page.get_by_role("button", name="Copy")).to_have_count(0)
        page.get_by_role("link", name="Predict", exact=True).click()
        expect(page.locator("#prediction-figure")).to_be_visible()


@pytest.mark.kernels
def test_the_lines_of_reproduction_print_the_kernels(
    page: Page, dashboard: Dashboard, fastest: str, tmp_path
):
    page.goto(f"{dashboard.url}/candidates/{fastest}")
    lines = page.locator("#reproduce-lines").text_content() or ""
    command = lines.replace("nestmap kernel", f"{sys.executable} -m nestmap kernel")
    subprocess.run(["sh", "-ec", command], cwd=tmp_path, check=True, timeout=120)
    printed = (tmp_path / "kernel.cl").read_text()
    shown = page.locator("#kernel-source").text_content() or ""
    # The header of the command names what was checked; the kernels are the same.
    assert _kernels(printed) == _kernels(shown)


def _kernels(source: str) -> str:
    return re.sub(r"/\*.*?\*/", "", source, flags=re.DOTALL).strip()


def test_what_is_not_there_is_a_page_that_says_so(page: Page, dashboard: Dashboard, watched):
    watched.expected = ("404",)
    answer = page.goto(f"{dashboard.url}/candidates/{'0' * 64}")
    assert answer is not None and answer.status == 404
    expect(page.locator("main")).to_contain_text("there is no candidate")


def test_the_page_looks_as_it_should(browser: Browser, dashboard: Dashboard, fastest: str):
    check_looks(browser, dashboard, f"/candidates/{fastest}", "candidate", "time[title]")
