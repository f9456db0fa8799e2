from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from serve.live import served
from serve.models import image_model, images, table_posterior

from mixupmp.web.png import png
from mixupmp.web.serve import served_model
from mixupmp.web.serve.app import create_app

DROP = """(pad, content) => {
  const bytes = Uint8Array.from(atob(content), letter => letter.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], "dropped.png", { type: "image/png" }));
  pad.dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
}"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(create_app(image_model())) as where:
        yield where


def answered(page: Any) -> None:
    page.wait_for_selector("body[data-state=answered]")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 390)])
def test_dropping_an_image_shows_the_votes(visit: Callable[..., Any], address: str, scheme: str, width: int) -> None:
    found = visit(address, scheme, width)
    page = found.page
    page.wait_for_selector("#examples button")
    picture = images(1, seed=11)
    expected = image_model().posterior.member_probabilities(picture)
    page.locator("#drop").evaluate(DROP, base64.b64encode(png(picture[0])).decode())
    answered(page)
    name = image_model().classes[int(expected.mean(0).argmax())]
    assert name in page.locator("#verdict").inner_text()
    votes = int((expected.argmax(-1) == expected.mean(0).argmax()).sum())
    assert f"{votes} of 3 members vote for {name}" in page.locator("#detail").inner_text()
    assert page.locator("#bars tr").first.locator(".tick").count() == 3
    assert found.complaints == []
    assert all(url.startswith((address, "data:", "blob:")) for url in found.requests)
    wide, shown = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= shown


def test_drawing_on_the_pad_asks(visit: Callable[..., Any], address: str) -> None:
    page = visit(address).page
    page.wait_for_selector("#examples button")
    box = page.locator("#pad").bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 180, box["y"] + 200, steps=5)
    page.mouse.up()
    answered(page)
    assert "kind" in page.locator("#verdict").inner_text()


def test_a_file_and_a_held_out_picture_can_be_chosen_by_keyboard(visit: Callable[..., Any], address: str) -> None:
    page = visit(address).page
    page.get_by_role("button", name="Try a held-out").first.press("Enter")
    answered(page)
    assert "The label is kind" in page.locator("#detail").inner_text()
    page.evaluate("delete document.body.dataset.state")
    page.locator("#file").set_input_files(
        {"name": "x.png", "mimeType": "image/png", "buffer": png(torch.zeros(3, 20, 20, dtype=torch.uint8))}
    )
    answered(page)
    assert "members vote" in page.locator("#detail").inner_text()


def test_what_is_no_image_is_told(visit: Callable[..., Any], address: str) -> None:
    page = visit(address).page
    page.wait_for_selector("#examples button")
    page.locator("#drop").evaluate(DROP, base64.b64encode(b"not an image").decode())
    answered(page)
    assert page.locator("#verdict").inner_text() == "No answer"
    assert "cannot be read" in page.locator("#detail").inner_text()


def test_a_model_of_tables_takes_a_row_of_numbers(visit: Callable[..., Any]) -> None:
    with served(create_app(served_model(table_posterior()))) as where:
        page = visit(where).page
        page.get_by_label("A row of numbers").fill("1, 2, 3, 4, 5")
        page.get_by_role("button", name="Predict").click()
        answered(page)
        assert "members vote" in page.locator("#detail").inner_text()


def test_the_page_asks_for_the_token(visit: Callable[..., Any]) -> None:
    secret = "0123456789abcdef"
    app = create_app(image_model(), token=secret, host="0.0.0.0")
    with served(app) as where:
        page = visit(where).page
        page.get_by_label("This server needs its token").fill(secret)
        page.get_by_role("button", name="Use it").click()
        page.wait_for_selector("#examples button")
        assert not page.locator("#token-form").is_visible()


def test_the_api_is_described_without_the_network(visit: Callable[..., Any], address: str) -> None:
    found = visit(address + "docs")
    assert found.complaints == []
    assert all(url.startswith((address, "data:")) for url in found.requests)
    assert found.page.get_by_role("heading", name="POST /predict").count() == 1
