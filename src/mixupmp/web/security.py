"""ASGI middleware of both servers: who is answered, how often, and how many bytes are held.

Without a token, only this machine is answered, by its own names: a page elsewhere could otherwise point a host name of
its own at 127.0.0.1 (DNS rebinding) or post from a visitor's browser (cross-site requests).
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import time
from collections import OrderedDict
from functools import lru_cache

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mixupmp.core.errors import InvalidArgument, check

SHORTEST_TOKEN = 16
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
# Host = uri-host [":" port] (RFC 9110): nothing else, and no user information.
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:\d{1,5})?", re.IGNORECASE)


@lru_cache(256)
def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, token: str | None, rate: float | None = None) -> None:
    """Refuse an address that others can reach without a token, a token that is too short, a rate that is no rate."""
    if token is not None and (len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
        raise InvalidArgument("token", f"{len(token)} characters", f"at least {SHORTEST_TOKEN} printable ASCII ones")
    if token is None and not is_loopback(host):
        raise InvalidArgument(
            "host",
            host,
            "this machine's own address (127.0.0.1) where no token is given",
            "Others can reach it: pass --token, or set MIXUPMP_TOKEN.",
        )
    check(rate is None or rate > 0, "rate", rate, "a positive number of requests a second")


class RateLimit:
    """A token bucket for each client address: `rate` requests a second, and a burst of as many."""

    ADDRESSES = 4096  # beyond, the address that was silent longest is forgotten

    def __init__(self, rate: float) -> None:
        self.rate, self.burst = rate, max(rate, 1.0)
        self.buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, address: str) -> bool:
        """Whether this client may send a request now."""
        now = time.monotonic()
        left, then = self.buckets.pop(address, (self.burst, now))
        left = min(left + (now - then) * self.rate, self.burst)
        self.buckets[address] = (left - 1 if left >= 1 else left, now)
        if len(self.buckets) > self.ADDRESSES:
            self.buckets.popitem(last=False)
        return left >= 1


class Guard:
    """Checks Host, Origin, token and rate of each request, and adds security headers to each response.

    Parameters
    ----------
    app
        The application behind it.
    policy
        The Content-Security-Policy of every response.
    token
        What clients send as `Authorization: Bearer TOKEN`; None asks for none.
    any_host
        Whether requests for host names other than this machine's own are answered.
    open_paths
        Paths that need no token: nothing of the model is in them. /healthz always is one, and has no rate limit.
    rate
        Requests a second from one address; None is unlimited.
    """

    def __init__(
        self,
        app: ASGIApp,
        policy: str,
        token: str | None = None,
        any_host: bool = False,
        open_paths: frozenset[str] = frozenset(),
        rate: float | None = None,
    ) -> None:
        self.app, self.token, self.any_host = app, token, any_host
        self.open_paths = open_paths | {"/healthz"}
        self.headers = HEADERS | {"content-security-policy": policy}
        self.limit = RateLimit(rate) if rate is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self.headers)
            await send(message)

        app = self._refusal(scope) or self.app
        await app(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        host = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if host is None:
            return _refused(400, "The Host header must be one host name with an optional port.")
        if not self.any_host and not is_loopback(host["name"]):
            return _refused(421, f"This server answers to localhost only, not to {host['name'][:100]!r}.")
        origins = {f"{scheme}://{hosts[0].lower()}" for scheme in ("http", "https")}
        if any(origin.lower() not in origins for origin in headers.getlist("origin")):
            return _refused(403, "The Origin header is that of another site: requests from its pages are refused.")
        if self.limit is not None and scope["path"] != "/healthz":
            client = scope.get("client")
            if not self.limit.allows(client[0] if client else ""):
                return _refused(429, f"At most {self.limit.rate:g} requests a second are answered.", "retry-after", "1")
        if self.token is None or scope["path"] in self.open_paths:
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self.token.encode()):
            detail = "This server needs its token: send the header 'Authorization: Bearer TOKEN'."
            return _refused(401, detail, "www-authenticate", "Bearer")
        return None


def _refused(status: int, detail: str, header: str = "", value: str = "") -> JSONResponse:
    return JSONResponse({"detail": detail}, status, {header: value} if header else None)


class BodyLimit:
    """Bounds each request's body, and the sum of all bodies that are held at once.

    The first 64 KiB of a body are not counted in the sum, so that large uploads cannot lock out small requests;
    connections are bounded, and these bytes with them.
    """

    UNCOUNTED = 64 * 1024

    def __init__(self, app: ASGIApp, each: int, together: int) -> None:
        self.app, self.each, self.together = app, each, together
        self.held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "")
        if length.isascii() and length.isdigit() and int(length[:20]) > self.each:
            await JSONResponse({"detail": self._too_large(length[:20])}, 413)(scope, receive, send)
            return
        size = counted = 0

        async def receive_within_limits() -> Message:
            nonlocal size, counted
            message = await receive()
            if message["type"] == "http.request":
                size += len(message.get("body", b""))
                if size > self.each:
                    raise HTTPException(413, self._too_large(f"more than {self.each}"))
                more = max(size - self.UNCOUNTED, 0) - counted
                if self.held + more > self.together:
                    detail = "The server holds too many large requests. Try again in a moment."
                    raise HTTPException(503, detail, {"retry-after": "1"})
                counted += more
                self.held += more
            return message

        try:
            await self.app(scope, receive_within_limits, send)
        finally:
            self.held -= counted

    def _too_large(self, found: str) -> str:
        return f"The body is {found} bytes; at most {self.each} are accepted."
