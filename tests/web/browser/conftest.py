"""A real browser for pages: Debian's chromium, driven by Playwright, with no way to the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")
# Without the background-networking flags chromium keeps knocking at hosts that a closed network refuses.
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


class Visit:
    """One page, and what it complained about and asked for while it was open."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))


# For one file at a time: while it is open, Playwright's event loop runs in this thread and no other could.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        yield (launched := driver.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS)))
        launched.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Visit]]:
    """Open an address: visit(url, scheme="dark", width=380)."""
    with ExitStack() as stack:

        def opened(url: str, scheme: str = "light", width: int = 1200) -> Visit:
            size = {"width": width, "height": 900}
            context = browser.new_context(color_scheme=scheme, viewport=size, accept_downloads=False)
            stack.callback(context.close)
            found = Visit(context.new_page())
            found.page.set_default_timeout(20_000)
            found.page.goto(url)
            return found

        yield opened
