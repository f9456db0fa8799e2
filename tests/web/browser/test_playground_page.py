from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playground.toys import Mirrored
from serve.live import served

from mixupmp.core.base_measures import BASE_MEASURES
from mixupmp.web.playground.app import create_app

# Few members and steps: what is tested is that pictures follow, not how good they get.
SMALL = "#members=3&steps=60"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(create_app()) as where:
        yield where


def landscape(page: Any) -> list[int]:
    """The levels of the picture at a few places."""
    return page.locator("#landscape").evaluate(
        "it => Array.from(it.getContext('2d').getImageData(0, 0, 640, 640).data.filter((_, k) => k % 4001 === 0))"
    )


def settled(page: Any) -> None:
    page.wait_for_selector("body[data-state=done]")
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def trained_again(page: Any, action: Callable[[], None]) -> None:
    page.evaluate("document.body.dataset.state = 'waiting'")
    action()
    settled(page)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1300), ("dark", 390)])
def test_it_opens_in_silence_and_shows_a_landscape(
    visit: Callable[..., Any], address: str, scheme: str, width: int
) -> None:
    found = visit(address + SMALL, scheme, width)
    settled(found.page)
    assert found.complaints == []
    assert all(url.startswith((address, "data:")) for url in found.requests)
    assert len(set(landscape(found.page))) > 20
    wide, shown = found.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= shown
    assert "Mean uncertainty" in found.page.locator("#status").inner_text()
    assert "MixupMP" in found.page.locator("#landscape").get_attribute("aria-label")


def test_moving_r_changes_the_landscape_and_the_future(visit: Callable[..., Any], address: str) -> None:
    page = visit(address + SMALL).page
    settled(page)
    before, said = landscape(page), page.locator("#future-title").inner_text()
    assert said == "A future: 870 observed rows, 870 simulated"
    trained_again(page, lambda: page.locator("#ratio").press("Home"))
    assert landscape(page) != before
    assert page.locator("#future-title").inner_text() == "A future: the 870 observed rows, and no others"
    assert "Deep ensemble" in page.locator("#landscape-title").inner_text()
    trained_again(page, lambda: page.locator("#ratio").press("End"))
    assert page.locator("#ratio-said").inner_text() == "r = ∞"
    assert "float('inf')" in page.locator("#snippet").inner_text()


def test_warped_blends_can_be_seen(visit: Callable[..., Any], address: str) -> None:
    page = visit(address + SMALL).page
    settled(page)
    before = landscape(page)
    page.get_by_text("Other futures").click()
    trained_again(page, lambda: page.get_by_label("Warped MixupMP").check())
    assert landscape(page) != before
    assert page.locator("#landscape-title").inner_text().startswith("Warped MixupMP, r = 1")
    assert "base=mixupmp.WarpedMixup()" in page.locator("#snippet").inner_text()
    assert page.locator("#alpha-row").is_visible()


def test_a_new_base_measure_can_be_chosen_and_linked_to(
    visit: Callable[..., Any], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BASE_MEASURES, "mirrored", Mirrored())
    page = visit(address + SMALL).page
    settled(page)
    page.get_by_text("Other futures").click()
    trained_again(page, lambda: page.get_by_label("Mirror Mixup").check())
    assert page.locator("#landscape-title").inner_text().startswith("Mirror MixupMP, r = 1")
    assert page.locator("#alpha-row").is_visible()
    assert not page.locator("#variance-row").is_visible()
    trained_again(page, lambda: page.locator("#alpha").press("Home"))
    assert "Mirrored(alpha=0.05)" in page.locator("#snippet").inner_text()
    again = visit(page.url).page
    settled(again)
    assert again.get_by_role("radio", name="Mirror MixupMP").is_checked()
    assert landscape(again) == landscape(page)


def test_drawing_points_retrains(visit: Callable[..., Any], address: str) -> None:
    page = visit(address + SMALL).page
    settled(page)
    before = landscape(page)
    page.get_by_role("button", name="Clear").click()
    assert "two classes" in page.locator("#status").inner_text()
    box = page.locator("#landscape").bounding_box()
    for brush, share in (("Class 1", 0.25), ("Class 2", 0.75)):
        page.evaluate("document.body.dataset.state = 'waiting'")
        page.get_by_role("button", name=brush).click()
        page.mouse.move(box["x"] + share * box["width"], box["y"] + share * box["height"])
        page.mouse.down()
        page.mouse.move(box["x"] + share * box["width"] + 20, box["y"] + share * box["height"], steps=4)
        page.mouse.up()
    settled(page)
    assert landscape(page) != before
    assert "drawn([(" in page.locator("#snippet").inner_text()


def test_points_can_be_drawn_by_keyboard(visit: Callable[..., Any], address: str) -> None:
    page = visit(address + SMALL).page
    settled(page)
    page.locator("#landscape").focus()
    for _ in range(3):
        page.keyboard.press("Shift+ArrowUp")
    trained_again(page, lambda: page.keyboard.press("Space"))
    assert "(0, 9, 0)" in page.locator("#snippet").inner_text()


def test_a_link_reproduces_the_view(visit: Callable[..., Any], address: str) -> None:
    page = visit(address + SMALL).page
    settled(page)
    trained_again(page, lambda: page.get_by_label("BB").check())
    trained_again(page, lambda: page.get_by_label("DP-MP Perturbed").check())
    trained_again(page, lambda: page.locator("#variance").press("End"))
    first, code = landscape(page), page.locator("#snippet").inner_text()
    again = visit(page.url).page
    settled(again)
    assert again.locator("#snippet").inner_text() == code
    assert "dp_mp_perturbed(ratio=1.0, variance=64.0, members=3)" in code
    assert landscape(again) == first


def test_it_shows_its_first_picture_soon(visit: Callable[..., Any], address: str) -> None:
    times = []
    for _ in range(3):
        page = visit(address).page
        page.wait_for_selector("body[data-first]")
        times.append(int(page.evaluate("document.body.dataset.first")))
        page.close()
    assert min(times) < 6000, times  # 2 s on an idle machine; tests share theirs


def test_a_spoilt_link_falls_back_to_the_default(visit: Callable[..., Any], address: str) -> None:
    found = visit(address + "#steps=60&members=2&ratio=-3&alpha=x&predictive=magic&points=%%%")
    settled(found.page)
    assert found.complaints == []
    assert "mixup_mp(ratio=1.0, alpha=1.0, members=2)" in found.page.locator("#snippet").inner_text()


def test_two_ratios_side_by_side(visit: Callable[..., Any], address: str) -> None:
    page = visit(address + SMALL).page
    settled(page)
    assert not page.locator("#beside-picture").is_visible()
    first = landscape(page)
    trained_again(page, lambda: page.get_by_label("a second r beside it").check())
    assert "Deep ensemble (r = 0)" in page.locator("#beside-picture-title").inner_text()
    assert "MixupMP, r = 1" in page.locator("#landscape-title").inner_text()
    assert landscape(page) == first  # trained once
    left, right = (page.locator(name).bounding_box() for name in ("#landscape", "#beside-picture"))
    assert abs(left["y"] - right["y"]) < 60
    assert left["x"] + left["width"] <= right["x"]
    trained_again(page, lambda: page.locator("#beside").press("End"))
    assert "beside=inf" in page.url
    again = visit(page.url).page
    settled(again)
    assert "Mixup ensemble" in again.locator("#beside-picture-title").inner_text()
    assert landscape(again) == first


def test_a_link_says_only_what_was_changed_in_the_clusters(visit: Callable[..., Any], address: str) -> None:
    page = visit(address + SMALL).page
    settled(page)
    page.locator("#landscape").focus()
    trained_again(page, lambda: page.keyboard.press("Space"))
    page.get_by_role("button", name="Erase").click()
    trained_again(page, lambda: page.locator("#landscape").click(position={"x": 20, "y": 20}))
    assert len(page.url) < len(address) + 150  # 870 points took 4,700 letters
    again = visit(page.url).page
    settled(again)
    assert again.locator("#snippet").inner_text() == page.locator("#snippet").inner_text()
    assert landscape(again) == landscape(page)
