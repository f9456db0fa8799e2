"""Who may talk to a server of ours: this machine, or those who know the token."""

from __future__ import annotations

import hmac
import ipaddress
import json
from collections.abc import Awaitable, Callable, MutableMapping
from functools import lru_cache
from typing import Any

from mixupmp.core.errors import InvalidArgument

ScopeOrMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[ScopeOrMessage]]
Send = Callable[[ScopeOrMessage], Awaitable[None]]
App = Callable[[ScopeOrMessage, Receive, Send], Awaitable[None]]

SHORTEST_TOKEN = 16
# Served without a token: nothing of the model shows in them, and watchdogs carry no secrets.
OPEN = frozenset({"/healthz"})
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
)


@lru_cache(256)  # every request asks, nearly always about the same name
def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, token: str | None) -> None:
    """An address that others can reach wants a token."""
    if token is not None and (len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
        raise InvalidArgument("token", f"{len(token)} characters", f"at least {SHORTEST_TOKEN} printable ASCII ones")
    if token is None and not is_loopback(host):
        raise InvalidArgument(
            "host", host, "this machine's own address (127.0.0.1) where no token is given",
            "Others can reach it: pass --token, or set MIXUPMP_TOKEN.",
        )  # fmt: skip


class Guard:
    """Refuses foreign host names, which a page elsewhere could point at this machine, and asks for the token."""

    def __init__(
        self, app: App, token: str | None = None, any_host: bool = False, open_paths: frozenset[str] = frozenset()
    ) -> None:
        self.app, self.token, self.any_host = app, token, any_host
        self.open_paths = OPEN | open_paths

    async def __call__(self, scope: ScopeOrMessage, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        refused = self._refusal(scope["path"], headers)
        if refused is not None:
            await _answer(send, *refused)
            return

        async def with_headers(message: ScopeOrMessage) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *HEADERS]
            await send(message)

        await self.app(scope, receive, with_headers)

    def _refusal(self, path: str, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        host = headers.get(b"host", b"").decode("latin-1")
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if not self.any_host and not is_loopback(name):
            return 421, f"This server answers to localhost only, not to {name[:100]!r}."
        if self.token is None or path in self.open_paths:
            return None
        given = headers.get(b"authorization", b"")
        scheme, _, word = given.partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(word.strip(), self.token.encode()):
            return 401, "This server wants its token: send the header 'Authorization: Bearer TOKEN'."
        return None


async def _answer(send: Send, status: int, detail: str) -> None:
    body = json.dumps({"detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *HEADERS]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
