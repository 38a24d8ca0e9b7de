"""A real browser on a real server on a real store: the way in, live growth, themes, a narrow screen, no errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from dashboard.server import Dashboard, prepare
from kernel_agent.report import campaign_report
from kernel_agent.report_html import as_html
from kernel_agent.store.repository import Store
from tests.dashboard.conftest import running
from tests.dashboard.written_campaign import CampaignWriter, SessionWriter

DRAWN = "#plot .scatterlayer .trace"
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
CHART_FOLLOWS = """() => document.getElementById("plot").layout.font.color
  === getComputedStyle(document.documentElement).getPropertyValue("--ink").trim()"""
# Elements with text of their own whose colours, as the browser computes them, are less than WCAG AA's 4.5:1 apart.
CONTRASTS = """() => {
  const channel = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = numbers(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *:not(svg):not(svg *):not(script)")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || !element.checkVisibility()) continue;
    const [a, b] = [light(numbers(getComputedStyle(element).color)), light(ground(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(`${element.className || element.tagName} "${element.textContent.trim()}" ${ratio}`);
  }
  return found;
}"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path / 'campaigns.db'}")
    yield opened
    opened.close()


@pytest.fixture
def served(store: Store) -> Iterator[Dashboard]:
    with running(prepare(store, port=0, token="a-token-for-the-browser")) as dashboard:
        yield dashboard


@pytest.fixture
def writer(store: Store) -> CampaignWriter:
    return CampaignWriter(store, "watched campaign", provenance="scripted", max_cost_usd=10.0)


@pytest.fixture
def session(writer: CampaignWriter) -> SessionWriter:
    made = writer.session("bundled/attention")
    made.improve("x = 1", 1.5)
    made.attempt("x = 2", "compile_error")
    return made


@pytest.fixture
def complaints() -> list[str]:
    """What the console said; violations of the content policy are among it."""
    return []


@pytest.fixture
def page(browser: BrowserContext, complaints: list[str]) -> Iterator[Page]:
    browser.clear_cookies()
    made = browser.new_page()
    made.on(
        "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
    )
    made.on("pageerror", lambda error: complaints.append(str(error)))
    yield made
    made.close()


def opened(page: Page, served: Dashboard) -> None:
    """Through the one-time URL, to the campaign's page, until its curve is drawn."""
    page.goto(served.url)
    page.get_by_role("link", name="watched campaign").click()
    page.wait_for_selector(DRAWN)
    expect(page.locator("#connection")).to_have_text("Live")


def test_a_campaign_grows_before_the_reader_s_eyes(
    page: Page, served: Dashboard, writer: CampaignWriter, session: SessionWriter, complaints: list[str]
) -> None:
    opened(page, served)
    expect(page.get_by_text("replies are scripted; every measurement is real")).to_be_visible()
    row = page.locator(f'[data-session="{session.session_id}"]')
    expect(row).to_contain_text("1.50×")
    expect(row.locator('[data-cell="steps"]')).to_have_text("2")
    drawn = page.evaluate("document.getElementById('plot').data.map((trace) => [...trace.y])")
    assert drawn == [[1.5, 1.5]]
    assert page.evaluate("document.getElementById('plot').layout.yaxis.type") == "log"
    # A mark that a reload would lose.
    page.evaluate("window.mark = 'same page'")
    link = page.locator(f"#session-{session.session_id}")
    link.focus()

    def go_on() -> None:
        for n in range(4):
            session.improve(f"y = {n}", 2.0 + n)
        writer.session("bundled/late").improve("z = 1", 3.0)

    thread = threading.Thread(target=go_on)
    thread.start()
    expect(row).to_contain_text("5.00×")
    expect(row.locator('[data-cell="steps"]')).to_have_text("6")
    expect(page.locator("[data-session]")).to_have_count(2)
    expect(page.locator(DRAWN)).to_have_count(2)
    expect(page.locator(".events")).to_contain_text("new best 3.00×")
    thread.join()
    grown = "() => JSON.stringify(document.getElementById('plot').data.map((trace) => [...trace.y]))"
    page.wait_for_function(f"({grown})() === '[[1.5,2,3,4,5],[3]]'")
    assert page.evaluate("window.mark") == "same page"
    expect(link).to_be_focused()

    writer.finish()
    expect(page.locator("#part-facts")).to_contain_text("finished")
    assert complaints == []


def test_a_page_outlives_its_server(page: Page, store: Store, session: SessionWriter) -> None:
    token = "the-same-token-after-a-restart"
    with running(prepare(store, port=0, token=token)) as first:
        opened(page, first)
        page.evaluate("window.mark = 'same page'")
    expect(page.locator("#connection")).to_have_text("Connection lost, trying again…")
    session.improve("y = 1", 4.0)
    with running(prepare(store, port=first.port, token=token)):
        expect(page.locator(f'[data-session="{session.session_id}"]')).to_contain_text("4.00×", timeout=15_000)
        expect(page.locator("#connection")).to_have_text("Live")
    assert page.evaluate("window.mark") == "same page"


def test_the_one_time_url_is_refused_the_second_time(page: Page, browser: BrowserContext, served: Dashboard) -> None:
    page.goto(served.url)
    expect(page.get_by_role("heading", name="Campaigns", exact=True)).to_be_visible()
    browser.clear_cookies()
    answer = page.goto(served.url)
    assert answer is not None
    assert answer.status == 410
    expect(page.get_by_text("used already")).to_be_visible()
    page.goto(served.url.split("/login")[0])
    expect(page.get_by_role("heading", name="Unauthorized")).to_be_visible()


def test_the_login_form_lets_the_token_in(page: Page, served: Dashboard) -> None:
    page.goto(served.url.split("?")[0])
    page.get_by_label("Token").fill("not-the-token-at-all")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("Token").fill("a-token-for-the-browser")
    page.keyboard.press("Enter")
    expect(page.get_by_text("kernel-agent demo")).to_be_visible()


def test_both_themes_are_readable_and_the_chart_follows(
    page: Page, served: Dashboard, session: SessionWriter, complaints: list[str]
) -> None:
    opened(page, served)
    for scheme in (*SCHEMES, SCHEMES[0]):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function(CHART_FOLLOWS)
        assert page.evaluate(CONTRASTS) == []
    page.goto(served.url.split("/login")[0] + f"/sessions/{session.session_id}")
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(CONTRASTS) == []
    assert complaints == []


def test_a_narrow_screen_needs_no_sideways_scrolling(page: Page, served: Dashboard, session: SessionWriter) -> None:
    page.set_viewport_size({"width": 400, "height": 850})
    opened(page, served)
    base = served.url.split("/login")[0]
    for path in (f"/campaigns/{session.store.session(session.session_id).campaign_id}", "/", "/login"):
        page.goto(base + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.goto(f"{base}/sessions/{session.session_id}")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_the_keyboard_reaches_everything(page: Page, served: Dashboard, session: SessionWriter) -> None:
    opened(page, served)
    reached = []
    page.evaluate("document.activeElement.blur()")
    for _ in range(5):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert reached == ["skip", "brand", "csv", "scroll", f"session-{session.session_id}"]
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="bundled/attention")).to_be_visible()


@pytest.mark.usefixtures("session")
def test_the_html_report_draws_by_itself(
    page: Page, store: Store, writer: CampaignWriter, complaints: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    file.write_text(as_html(campaign_report(store, writer.id)), "utf-8")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    expect(page.locator(".figure .scatterlayer .trace")).to_have_count(1)
    expect(page.locator(".figure .barlayer .trace")).to_have_count(2)
    expect(page.get_by_role("cell", name="1.50×")).to_be_visible()
    assert asked == [file.as_uri()]
    assert complaints == []
