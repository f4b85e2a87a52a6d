"""The console in a real browser, against a control plane that is played from recorded answers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect

from tests.browser.chromium import STALE_AFTER_MS, VIEWS, View, open_page, shown
from tests.browser.fake_api import TOKEN, FakeApi, brief, recorded

WIDTHS = (380, 1440, 1920)
# a chart is one picture with a name, its numbers stand in a table
OUTSIDE_PICTURES = {"exclude": [[".main-svg"]]}
EVERY_RULE = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
RULE_OF_COLOURS = {"runOnly": ["color-contrast"]}
CHECKS = (("light", EVERY_RULE), ("dark", RULE_OF_COLOURS))
# elements with text of their own that needs more room than they have and show no scroll bar
CLIPPED = """() => [...document.querySelectorAll('body *')].filter((e) => {
  if (e.closest('svg, .plot, .unseen, thead, option') || !e.getClientRects().length) return false;
  const style = getComputedStyle(e);
  if (style.display === 'inline' || style.overflowX === 'auto') return false;
  const speaks = [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim());
  const cutsBelow = style.overflowY === 'hidden' && e.scrollHeight > e.clientHeight + 1;
  return speaks && (e.scrollWidth > e.clientWidth + 1 || cutsBelow);
}).map((e) => `${e.tagName} ${e.className}: ${e.textContent.slice(0, 60)}`)"""
FITS = "() => document.documentElement.scrollWidth <= document.documentElement.clientWidth"
COUNTS = "article[aria-label='Pool {}'] .counts > div"


def _counts(page: Page, pool: str) -> dict[str, str]:
    groups = page.locator(COUNTS.format(pool)).all()
    return {g.locator("dt").inner_text(): g.locator("dd").inner_text() for g in groups}


def _next(view: dict[str, Any], **of_prefill: object) -> dict[str, Any]:
    """The view one tick later, with some numbers of the first pool changed."""
    later = {**view, "epoch": view["epoch"] + 1, "at_s": view["at_s"] + view["tick_s"]}
    later["pools"] = [{**view["pools"][0], **of_prefill}, *view["pools"][1:]]
    return later


def _complaints(page: Page) -> list[str]:
    """Whatever the page's code or its own content policy trips over, as it comes."""
    said: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            said.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: said.append(str(error)))
    return said


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_every_view_is_accessible_and_cuts_no_text_off_in_both_schemes_at_every_width(
    chromium: Browser, view: View
) -> None:
    with shown(chromium, view, is_brief=True) as page:
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate(CLIPPED) == [], width
            page.wait_for_function(FITS)  # charts follow a moment later
        page.set_viewport_size({"width": 1440, "height": 900})
        for scheme, rules in CHECKS:
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # a literal
            found = Axe().run(page, context=OUTSIDE_PICTURES, options=rules)
            assert found.violations_count == 0, found.generate_report()


def test_the_verdict_names_the_phase_in_trouble_and_why(profile: BrowserContext) -> None:
    with FakeApi(brief(recorded("trouble"))) as api:
        page = open_page(profile, api)

        expect(page.locator("#verdict-title")).to_have_text("Trouble in decode")
        because = page.locator("#verdict-because")
        expect(because).to_contain_text("73.6 % within the target, 99 % wanted")
        expect(because).to_contain_text("decode has 6 of the 11 replicas it needs ready")
        expect(page.locator("article[aria-label='Pool prefill']")).to_contain_text(
            "floor of 6 by maria, ends in 45 min"
        )


def test_what_is_unknown_is_said_to_be_and_never_drawn_as_zero(profile: BrowserContext) -> None:
    view = brief(recorded("blind"))
    with FakeApi(view, has_plotly=True) as api:
        page = open_page(profile, api)

        expect(page.locator("#verdict-title")).to_have_text("Blind in decode")
        assert _counts(page, "decode") == {
            "Wanted": "unknown",
            "Desired": "6",
            "Ready": "unknown",
            "Starting": "unknown",
            "Draining": "unknown",
        }
        assert page.locator("#slis dd").all_inner_texts()[:2] == ["unknown", "unknown"]
        expect(page.locator("#charts")).to_contain_text("unknown demanded, unknown provided")
        ready = page.evaluate(
            "() => document.querySelectorAll('.plot')[1].data.find((t) => t.name === 'ready').y"
        )
        assert ready == view["history"]["pools"]["decode"]["ready"]
        assert ready[-1] is None
        gaps = "() => [...document.querySelectorAll('.plot')].map((p) => p.data).flat()"
        assert not page.evaluate(f"({gaps})().some((trace) => trace.connectgaps)")
        page.locator("summary", has_text="Output tokens").click()
        row = page.get_by_role("region", name="Numbers of: Output tokens to decode")
        expect(row.locator("tbody tr").first).to_contain_text("unknown")
        expect(row.locator("tbody tr").first).not_to_contain_text("0 tokens/s")


def test_the_next_tick_changes_the_numbers_without_moving_the_focus(
    profile: BrowserContext,
) -> None:
    view = brief(recorded("healthy"))
    with FakeApi(view) as api:
        page = open_page(profile, api)
        link = page.get_by_role("link", name="Why this size of prefill?")
        link.focus()

        api.send(_next(view, wanted=9, desired=9, ready=7, starting=2))

        ready = page.locator(COUNTS.format("prefill")).filter(has_text="Starting").locator("dd")
        expect(ready).to_have_text("2")
        assert _counts(page, "prefill")["Wanted"] == "9"
        expect(page.locator("#verdict-title")).to_contain_text("prefill is short and growing")
        expect(link).to_be_focused()
        expect(link).to_have_attribute("href", f"#why/prefill/{view['epoch'] + 1}")


def test_a_slow_link_is_in_the_verdict_though_targets_are_met(profile: BrowserContext) -> None:
    words = "KV transfers to decode run at 0.11 GB/s, 0.45 GB/s declared: the link is slow"
    view = brief(recorded("healthy"))
    next(pool for pool in view["pools"] if pool["name"] == "decode")["problems"] = [words]
    with FakeApi(view) as api:
        page = open_page(profile, api)

        expect(page.locator("#verdict-title")).to_contain_text("decode: something is wrong")
        expect(page.locator("#verdict-because")).to_contain_text(words)
        expect(page.locator("#verdict")).to_have_attribute("data-level", "watch")


def test_it_says_stale_by_its_own_clock_when_nothing_comes_any_more(
    profile: BrowserContext,
) -> None:
    view = brief(recorded("healthy"))
    with FakeApi(view) as api:
        page = open_page(profile, api)
        expect(page.locator("#verdict")).to_have_attribute("data-level", "good")
        api.falls_silent()

        page.clock.fast_forward(STALE_AFTER_MS)

        expect(page.locator("#verdict-title")).to_contain_text("Stale: nothing new since")
        expect(page.locator("#age")).to_have_text(re.compile("stale: newest data 5 min"))
        expect(page.locator("article .as-of").first).to_contain_text("not now")
        expect(page.locator("#sources")).to_contain_text("was fresh")
        assert "met" not in page.locator("#slis").inner_text()

        api.send(_next(view))

        expect(page.locator("#verdict")).to_have_attribute("data-level", "good")
        expect(page.locator("article .as-of").first).to_be_hidden()


def test_no_two_ticks_of_an_axis_have_one_name_in_a_chart_of_minutes_and_few_replicas(
    profile: BrowserContext,
) -> None:
    view = brief(recorded("healthy"))
    for pool in view["history"]["pools"].values():
        pool.update({state: [1] * 8 for state in ("wanted", "desired", "ready")})
        pool.update({state: [0] * 8 for state in ("starting", "draining")})
    with FakeApi(view, has_plotly=True) as api:
        page = open_page(profile, api)

        names = page.evaluate(
            "() => [...document.querySelectorAll('.plot')].flatMap((plot) => ['.xtick', '.ytick']"
            ".map((axis) => [...plot.querySelectorAll(axis)].map((tick) => tick.textContent)))"
        )

    assert len(names) == 12
    assert all(len(axis) > 1 and len(set(axis)) == len(axis) for axis in names), names


def test_the_same_tick_sent_again_is_not_taken_for_news(profile: BrowserContext) -> None:
    view = brief(recorded("healthy"))
    with FakeApi(view) as api:
        page = open_page(profile, api)

        page.clock.fast_forward(STALE_AFTER_MS)  # it asks anew, and is told the same tick
        expect(page.locator("#verdict")).to_have_attribute("data-level", "stale")
        api.send(view)

        page.wait_for_timeout(300)
        expect(page.locator("#verdict")).to_have_attribute("data-level", "stale")
        assert api.streams_begun > 1


def test_it_connects_again_by_itself_after_the_control_plane_hangs_up(
    profile: BrowserContext,
) -> None:
    view = brief(recorded("healthy"))
    with FakeApi(view) as api:
        page = open_page(profile, api)
        api.view = _next(view, ready=3)

        api.hang_up()
        page.clock.fast_forward(20_000)

        ready = page.locator(COUNTS.format("prefill")).filter(has_text="Ready").locator("dd")
        expect(ready).to_have_text("3")
        assert api.streams_begun == 2


def test_half_an_event_is_ignored_and_the_next_one_is_shown(profile: BrowserContext) -> None:
    view = brief(recorded("healthy"))
    with FakeApi(view) as api:
        page = open_page(profile, api)

        api.send_raw(b'event: view\ndata: {"tier": "demo", "po\n\n')
        api.send(_next(view, ready=5))

        ready = page.locator(COUNTS.format("prefill")).filter(has_text="Ready").locator("dd")
        expect(ready).to_have_text("5")


def test_the_why_of_a_decision_is_reached_and_left_by_keyboard_and_has_an_address(
    profile: BrowserContext,
) -> None:
    view = brief(recorded("healthy"))
    with FakeApi(view) as api:
        page = open_page(profile, api)
        page.keyboard.press("Tab")
        expect(page.locator("#skip")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#pools")).to_be_focused()
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Why this size of prefill?")).to_be_focused()

        first = page.locator("#decision-list a").first
        first.focus()
        page.keyboard.press("Enter")

        newest = view["decisions"][0]
        assert page.url.endswith(f"#why/{newest['pool']}/{newest['epoch']}")
        why = page.get_by_role("dialog")
        expect(why).to_contain_text(api.why["verdict"])
        expect(why).to_contain_text(api.why["what_would_change"])
        for need in api.why["needs"]:
            expect(why).to_contain_text(need["words"])
        for step in api.why["steps"]:
            expect(why).to_contain_text(step["words"])
        assert why.locator("tbody tr").count() == sum(
            len(api.why[part]) for part in ("counterfactuals", "needs", "inputs")
        )

        page.keyboard.press("Escape")
        expect(why).to_be_hidden()
        expect(page).to_have_url(api.url)
        expect(first).to_be_focused()


def test_a_link_to_a_why_opens_it_and_a_refusal_is_shown_in_words(profile: BrowserContext) -> None:
    with FakeApi(brief(recorded("healthy"))) as api:
        page = open_page(profile, api, "#why/decode/204")
        expect(page.get_by_role("dialog")).to_contain_text(api.why["verdict"])
        assert api.asked == [("GET", "/api/v1/tiers/demo/why?pool=decode&epoch=204", None)]

        api.refusal = (404, "tick 7 is no longer in the ledger")
        page.evaluate("location.hash = '#why/decode/7'")

        expect(page.get_by_role("alert")).to_have_text("tick 7 is no longer in the ledger")


def test_an_override_is_asked_for_with_the_token_that_was_typed(profile: BrowserContext) -> None:
    with FakeApi(brief(recorded("healthy"))) as api:
        page = open_page(profile, api)
        page.get_by_role("button", name="Override decode").click()
        form = page.get_by_role("dialog")
        said = form.get_by_role("alert")
        apply = form.get_by_role("button", name="Apply")
        expect(form.locator("[name=replicas]")).to_be_hidden()

        form.get_by_role("radio", name="Floor").check()
        form.get_by_role("spinbutton", name="Replicas").fill("12")
        form.get_by_label("For, in minutes").fill("")
        apply.click()
        expect(said).to_contain_text("every override ends")
        form.get_by_label("For, in minutes").fill("30")
        form.get_by_label("Your name").fill("maria")
        apply.click()
        expect(said).to_have_text("A token is needed.")
        assert api.asked == []

        form.get_by_label("Token").fill("wrong")
        apply.click()
        expect(said).to_contain_text("The token was not accepted")
        form.get_by_label("Token").fill(TOKEN)
        apply.click()
        expect(form).to_be_hidden()

        wanted = {"kind": "floor", "pool": "decode", "for_s": 1800, "by": "maria", "replicas": 12}
        assert api.asked[-1] == ("POST", "/api/v1/tiers/demo/overrides", wanted)
        kept = page.evaluate(
            "() => JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])"
        )
        assert TOKEN not in kept


def test_an_override_can_be_ended_and_a_control_plane_without_a_token_file_says_so(
    profile: BrowserContext,
) -> None:
    with FakeApi(brief(recorded("trouble"))) as api:
        page = open_page(profile, api)
        page.get_by_role("button", name="Override prefill").click()
        form = page.get_by_role("dialog")
        form.get_by_label("Token").fill(TOKEN)
        api.refusal = (403, "overrides are off: the settings name no console.tokenFile")
        form.get_by_role("button", name="End the present override").click()
        expect(form.get_by_role("alert")).to_have_text(
            "Overrides are off: the settings name no console.tokenFile."
        )

        api.refusal = None
        form.get_by_role("button", name="End the present override").click()

        expect(form).to_be_hidden()
        assert api.asked[-1] == ("DELETE", "/api/v1/tiers/demo/overrides/prefill", None)


def test_its_own_policy_and_code_have_nothing_to_complain_of(profile: BrowserContext) -> None:
    with FakeApi(brief(recorded("healthy")), has_plotly=True) as api:
        page = profile.new_page()
        said = _complaints(page)
        foreign: list[str] = []
        page.on("request", lambda r: foreign.append(r.url) if api.url not in r.url else None)
        page.goto(api.url)
        expect(page.locator(".plot .main-svg").first).to_be_visible()
        page.emulate_media(color_scheme="dark")
        page.get_by_role("link", name="Why this size of decode?").click()
        expect(page.get_by_role("dialog")).to_contain_text(api.why["verdict"])

        assert said == []
        assert [url for url in foreign if not url.startswith("data:")] == []


def test_words_from_outside_are_shown_as_text_and_never_run(profile: BrowserContext) -> None:
    view = brief(recorded("healthy"))
    evil = "<img src=x onerror=\"document.title='owned'\">"
    view["problems"] = [evil]
    view["pools"][0]["words"] = evil
    view["decisions"][0]["words"] = evil
    with FakeApi(view) as api:
        page = open_page(profile, api)

        expect(page.locator("#problems")).to_have_text(evil)
        assert page.locator("img").count() == 0


def test_a_tick_that_is_old_when_the_page_opens_is_not_shown_as_fresh(
    profile: BrowserContext,
) -> None:
    with FakeApi(brief(recorded("healthy"))) as api:
        api.tick_age_s = 3600.0
        page = open_page(profile, api)

        expect(page.locator("#verdict")).to_have_attribute("data-level", "stale")
        expect(page.locator("#age")).to_contain_text("60 min")
