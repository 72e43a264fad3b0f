"""The page of a layer: rules, counts, mappings to pin and forbid, and the checker."""

from __future__ import annotations

import csv
import io
from urllib.parse import parse_qsl, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.conftest import Dashboard, check_looks, open_context

pytestmark = pytest.mark.needs("chromium", install="apt-get install chromium")

LAYER = "/layers/vgg16/7"
ABOUT = {"subject": {"name": "vgg16/7"}, "variant": "high-level", "device": "mali-g72"}
QUERY = "variant=high-level&device=mali-g72"
#: Work-groups without local threads, and two sequential loops that could be one.
BROKEN = "set=row%3DW0&set=column%3DS&set=filter%3DS"


def asked(dashboard: Dashboard, path: str, **fields) -> dict:
    with dashboard.client() as client:
        answer = client.post(path, json={**ABOUT, **fields}, headers={"Prefer": "wait=60"})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_every_constraint_is_listed_by_rule_with_its_source(page: Page, dashboard: Dashboard):
    page.goto(f"{dashboard.url}{LAYER}?{QUERY}")
    listed = asked(dashboard, "/v1/constraints")["constraints"]
    rules = list(dict.fromkeys(one["rule"] for one in listed))
    expect(page.locator("details.rule")).to_have_count(len(rules))
    for place, rule in enumerate(rules):
        group = page.locator("details.rule").nth(place)
        own = [one for one in listed if one["rule"] == rule]
        expect(group.locator("table > tbody > tr")).to_have_count(len(own))
        expect(group.locator("> summary")).to_contain_text(rule)
        assert own[0]["provenance"] in (group.text_content() or "")
        assert own[0]["predicate"] in (group.text_content() or "")
    first = page.locator("details.rule").first
    first.locator("> summary").focus()
    page.keyboard.press("Enter")
    expect(first.locator("table")).to_be_visible()


def test_counts_before_and_after_each_rule_are_the_solvers(page: Page, dashboard: Dashboard):
    page.goto(f"{dashboard.url}{LAYER}?{QUERY}&view=counts")
    rows = page.locator("#counts-table tbody tr")
    steps = asked(dashboard, "/v1/constraints/waterfall")["steps"]
    expect(rows).to_have_count(len(steps))
    with page.expect_download() as started:
        page.get_by_role("button", name="CSV").click()
    file = list(csv.DictReader(io.StringIO(started.value.path().read_text())))
    assert [(int(row["Before"]), int(row["After"])) for row in file] == [
        (step["before"], step["after"]) for step in steps
    ]
    expect(page.locator("#counts")).to_contain_text("are valid of")


def test_what_is_not_counted_in_time_is_said_to_be_so(page: Page, dashboard: Dashboard):
    # A nest of 43 maps does not come apart within a second.
    page.goto(f"{dashboard.url}{LAYER}?variant=direct&view=counts&seconds=1")
    expect(page.locator("#counts")).to_contain_text("counted within 1 s")
    expect(page.get_by_role("link", name="Count for up to 2 min")).to_be_visible()


@pytest.mark.parametrize(
    ("bias", "variant", "reason"),
    [
        (True, "high-level", "direct does not do layer.bias True"),
        (False, "direct", "does this layer; others by name"),
    ],
    ids=["with a bias", "plain"],
)
def test_the_page_opens_in_the_variant_that_an_answer_would_have(
    page: Page, dashboard: Dashboard, bias: bool, variant: str, reason: str
):
    document = {"schema": "nestmap/layer/2", "channels": 16, "height": 8, "width": 8,
                "filters": 16, "bias": bias, "activation": "none"}  # fmt: skip
    with dashboard.client() as client:
        stored = client.post("/v1/layers", json=document).json()
        about = {"subject": {"document": document}, "limit": 1}
        answer = client.post("/v1/mappings", json=about).json()
    assert answer["variant"] == variant and answer["variant_reason"].startswith(reason)
    page.goto(f"{dashboard.url}/layers/{stored['id']}")
    expect(page.get_by_label("Variant")).to_have_value(variant)
    expect(page.locator("form.controls")).to_contain_text(reason)
    page.goto(f"{dashboard.url}/layers/{stored['id']}?variant=high-level")
    expect(page.get_by_label("Variant")).to_have_value("high-level")
    expect(page.locator("form.controls")).not_to_contain_text(reason)


def test_pinning_and_forbidding_ask_the_solver_and_stay_in_the_address(
    page: Page, dashboard: Dashboard
):
    page.goto(f"{dashboard.url}{LAYER}?{QUERY}&view=mappings")
    everything = asked(dashboard, "/v1/mappings/count")["count"]
    expect(page.locator("#mapping-count strong")).to_have_text(
        f"{everything:,}".replace(",", "\u202f")
    )
    link = page.locator(".mapping-list a[aria-label*='dimension']").first
    words = (link.get_attribute("aria-label") or "").split(" ")
    name, code = words[1], words[3].rstrip(",")
    link.click()
    expect(page.locator(".choice-tag")).to_have_text(f"pinned {name}={code} ✕")
    assert ("pin", f"{name}={code}") in parse_qsl(urlsplit(page.url).query)
    fewer = asked(dashboard, "/v1/mappings/count", pin=[f"{name}={code}"])["count"]
    assert 0 < fewer <= everything
    expect(page.locator("#mapping-count strong")).to_have_text(f"{fewer:,}".replace(",", "\u202f"))
    shown = asked(dashboard, "/v1/mappings", pin=[f"{name}={code}"], limit=20)["items"]
    expect(page.locator(".mapping-list > li")).to_have_count(len(shown))
    # Two nested maps cannot have one thread index.
    other = next(one for one in ("row", "column") if one != name)
    page.get_by_label("Map, parameter or local size").select_option(other)
    page.get_by_label("Values").fill(code)
    page.get_by_role("button", name="Pin", exact=True).click()
    expect(page.locator("#browser")).to_contain_text("These cannot hold together")
    expect(page.locator(".violations li")).not_to_have_count(0)
    page.get_by_role("link", name=f"Take the pin {name}={code} back").click()
    expect(page.locator(".choice-tag")).to_have_count(1)
    page.get_by_label("Values").fill("S")
    page.get_by_role("button", name="Forbid").click()
    expect(page.locator(".choice-tag").nth(1)).to_contain_text("forbidden row=S")
    expect(page.locator(".mapping-list > li").first).to_be_visible()
    page.go_back()
    expect(page.locator(".choice-tag")).to_have_count(1)
    page.go_back()
    expect(page.locator(".choice-tag")).to_have_count(2)


def test_pages_of_mappings_follow_each_other(page: Page, dashboard: Dashboard):
    page.goto(f"{dashboard.url}{LAYER}?{QUERY}&view=mappings")
    expect(page.locator(".mapping-list > li").first).to_contain_text("Mapping 1")
    page.get_by_role("link", name="Next page").click()
    expect(page.locator(".mapping-list > li").first).to_contain_text("Mapping 21")
    page.get_by_role("link", name="First page").click()
    expect(page.locator(".mapping-list > li").first).to_contain_text("Mapping 1")


def test_broken_rules_light_up_and_the_nearest_valid_mapping_can_be_taken(
    page: Page, dashboard: Dashboard
):
    valid = "set=row%3DG0&set=column%3DS&set=filter%3DS"
    page.goto(f"{dashboard.url}{LAYER}?{QUERY}&view=check&{valid}")
    expect(page.locator("#verdict .notice.good")).to_contain_text("Valid.")
    # By keyboard: the choice is made and asked about without a button, and the focus stays.
    page.get_by_label("row", exact=True).focus()
    page.get_by_label("row", exact=True).select_option("row=L0")
    expect(page.locator("#verdict .notice.bad")).to_contain_text("Not valid")
    expect(page.get_by_label("row", exact=True)).to_be_focused()
    chosen = dict(
        value.rsplit("=", 1) for key, value in parse_qsl(urlsplit(page.url).query) if key == "set"
    )
    assert chosen["row"] == "L0"
    verdict = asked(dashboard, "/v1/mappings/check", mapping={"mapping": chosen})
    sentences = page.locator("#verdict > .violations li").all_text_contents()
    assert len(sentences) == len(verdict["violations"]) > 0
    for violation, text in zip(verdict["violations"], sentences, strict=True):
        assert violation["sentence"] in text and violation["rule"] in text
    expect(page.locator("#checker li.broken").first).to_be_visible()
    expect(page.locator("#nearest-table tbody tr")).to_have_count(
        len(verdict["nearest"]["changes"])
    )
    page.get_by_role("link", name="Take it").click()
    expect(page.locator("#verdict .notice.good")).to_contain_text("Valid.")
    expect(page.locator("#checker li.broken")).to_have_count(0)
    page.reload()
    expect(page.locator("#verdict .notice.good")).to_contain_text("Valid.")


def test_a_layer_of_ones_own_and_a_program_are_entered_by_forms(page: Page, dashboard: Dashboard):
    page.goto(f"{dashboard.url}/layers")
    form = page.locator("form", has=page.get_by_label("Channels"))
    for label, value in (("Channels", 2), ("Height", 6), ("Width", 6), ("Filters", 4)):
        form.get_by_label(label, exact=True).fill(str(value))
    form.get_by_label("Name").fill("mine")
    form.get_by_role("button").click()
    expect(page.locator("h1")).to_contain_text("mine")
    expect(page.locator("details.rule")).not_to_have_count(0)
    page.goto(f"{dashboard.url}/layers")
    expect(page.get_by_role("link", name="mine")).to_be_visible()
    page.locator("#layer-name").fill("vgg16/7")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator("h1")).to_contain_text("vgg16/7")


def test_what_is_wrong_with_a_layer_is_said_on_a_page(page: Page, dashboard: Dashboard, watched):
    watched.expected = ("404", "422")
    page.goto(f"{dashboard.url}/layers")
    form = page.locator("form", has=page.get_by_label("Channels"))
    form.get_by_label("Groups").fill("7")
    form.get_by_role("button").click()
    expect(page.locator("main")).to_contain_text("groups")
    answer = page.goto(f"{dashboard.url}/layers/vgg16/999")
    assert answer is not None and answer.status == 404
    page.goto(f"{dashboard.url}{LAYER}?variant=nothing")
    expect(page.locator("main")).to_contain_text("no variant, nor a sketch")
    expect(page.locator("main")).to_contain_text("allowed: direct, partial, high-level")
    page.goto(f"{dashboard.url}{LAYER}?{QUERY}&view=mappings&pin=nothing%3DW0")
    expect(page.locator("#browser")).to_contain_text("nothing of this name")


def test_everything_works_as_forms_without_scripts(browser: Browser, dashboard: Dashboard):
    with open_context(browser, dashboard, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"{dashboard.url}{LAYER}?{QUERY}&view=mappings")
        page.get_by_label("Values").fill("S")
        page.get_by_role("button", name="Forbid").click()
        expect(page.locator(".choice-tag")).to_have_count(1)
        page.get_by_role("link", name="Count them").click()
        expect(page.locator("#mapping-count strong")).to_be_visible()
        page.goto(f"{dashboard.url}{LAYER}?{QUERY}&view=check")
        expect(page.locator("#verdict .notice.good")).to_be_visible()
        page.get_by_role("button", name="Check").click()
        expect(page.locator("#verdict .notice.good")).to_be_visible()


@pytest.mark.parametrize(
    ("name", "path", "ready"),
    [
        ("layers", "/layers", "#layer-name"),
        ("layer", f"{LAYER}?{QUERY}", "details.rule"),
        ("layer-counts", f"{LAYER}?{QUERY}&view=counts", "#counts-table"),
        ("layer-mappings", f"{LAYER}?{QUERY}&view=mappings&pin=row%3DG0", "#mapping-count"),
        ("layer-check", f"{LAYER}?{QUERY}&view=check&{BROKEN}", "#nearest-table"),
    ],
)
def test_the_pages_look_as_they_should(
    browser: Browser, dashboard: Dashboard, name: str, path: str, ready: str
):
    check_looks(browser, dashboard, path, name, ready)
