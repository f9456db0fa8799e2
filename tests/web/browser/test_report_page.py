from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report.answers import two_runs  # the made-up runs of the report's own tests

from mixupmp.web.report import write_report


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = write_report(two_runs(rows=10_000), tmp_path_factory.mktemp("report") / "report.html")
    return path.as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [380, 1200])
def test_it_opens_from_disk_in_silence_and_asks_for_nothing(
    visit: Callable[..., Any], report: str, scheme: str, width: int
) -> None:
    found = visit(report, scheme, width)
    found.page.wait_for_load_state("networkidle")
    assert found.complaints == []
    assert [url for url in found.requests if not url.startswith(("file:", "data:"))] == []
    wide, shown = found.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= shown, "the page must not scroll sideways"
    background = found.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 20, 31)")


def test_it_opens_in_under_a_second(visit: Callable[..., Any], report: str) -> None:
    found = visit(report)
    times = []
    for _ in range(3):
        found.page.reload(wait_until="load")
        times.append(found.page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    assert min(times) < 1000


def test_its_figures_have_text_alternatives(visit: Callable[..., Any], report: str) -> None:
    page = visit(report).page
    figures = page.locator("figure svg[role=img]")
    assert figures.count() >= 8
    for name in figures.evaluate_all("all => all.map(one => one.getAttribute('aria-label'))"):
        assert len(name) > 20
    assert page.get_by_role("img", name="Reliability diagram of Deep ensemble").count() == 1
    assert page.locator("img:not([alt])").count() == 0


def test_a_keyboard_reaches_what_a_mouse_does(visit: Callable[..., Any], report: str) -> None:
    page = visit(report).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # the theme switch: system -> light
    page.keyboard.press("Enter")  # light -> dark
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 20, 31)"


def test_the_threshold_says_what_abstaining_buys(visit: Callable[..., Any], report: str) -> None:
    page = visit(report).page
    slider = page.get_by_label("Answer only when the confidence is at least")
    slider.evaluate("it => { it.value = 0; it.dispatchEvent(new Event('input')); }")
    assert "answers about 100.0% of the rows" in page.locator(".abstain li").first.inner_text()
    slider.evaluate("it => { it.value = 1000; it.dispatchEvent(new Event('input')); }")
    assert "hardly any row" in page.locator(".abstain li").first.inner_text()


def test_a_table_sorts_by_a_press_on_its_head(visit: Callable[..., Any], report: str) -> None:
    page = visit(report).page
    table = page.locator("details.run-part[open] table[data-sortable]")
    table.get_by_role("button", name="Recall %").click()
    found = [float(text) for text in table.locator("tbody tr td:nth-child(4)").all_inner_texts()]
    assert found == sorted(found, reverse=True)
    assert table.locator("th[aria-sort=descending]").inner_text().startswith("Recall %")


def test_a_phone_folds_its_sections_and_a_link_opens_one(visit: Callable[..., Any], report: str) -> None:
    page = visit(report, width=380).page
    assert page.locator("details.section[open]").count() == 1
    assert page.evaluate("document.documentElement.scrollHeight") < 4000
    first_number = page.locator("#metrics td.number").first.bounding_box()  # beside the run's name, however long
    assert first_number["x"] + first_number["width"] < 380
    page.locator("nav.contents a", has_text="Calibration").click()
    assert page.locator("#calibration figure").first.is_visible()
    wide = visit(report).page
    assert wide.locator("details.section:not([open])").count() == 0


def test_a_pdf_has_all_images(visit: Callable[..., Any], report: str) -> None:
    page = visit(report, width=380).page
    sources = page.locator("img").evaluate_all("all => all.map(one => one.src)")
    assert len(sources) >= 24
    assert page.pdf().count(b"/Subtype /Image") == len(set(sources))  # one that is shown twice is in the file once


def test_a_table_can_be_downloaded(visit: Callable[..., Any], report: str) -> None:
    page = visit(report).page
    link = page.locator("#metrics .downloads a", has_text="CSV").first
    assert link.get_attribute("download") == "metrics.csv"
    text = base64.b64decode(link.get_attribute("href").partition(",")[2]).decode()
    assert text.startswith("Run,ACC (%),ACC (%) standard error,NLL")


def test_it_prints_with_everything_unfolded(visit: Callable[..., Any], report: str) -> None:
    page = visit(report, "dark").page
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details.run-part:not([open])").count() == 0
    assert not page.locator("nav.contents").is_visible()
    assert len(page.pdf()) > 20_000


def test_the_table_of_metrics_fits_a_desktop(visit: Callable[..., Any], tmp_path: Path) -> None:
    first, second = two_runs(rows=200)
    runs = [replace(first, title="Deep ensemble"), replace(second, title="MixupMP r=0.25 α=0.4, half as long")]
    page = visit(write_report(runs, tmp_path / "report.html").as_uri(), width=1280).page
    wide, shown = page.locator("#metrics .scroll").first.evaluate("one => [one.scrollWidth, one.clientWidth]")
    assert wide <= shown
