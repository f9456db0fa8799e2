"""What one request may ask for, and how a refusal is told."""

from __future__ import annotations

from dataclasses import dataclass, fields

from mixupmp.core.errors import check


@dataclass(frozen=True)
class Limits:
    """Bounds on every request and on the work that waits."""

    body: int = 8 * 2**20  # bytes of a request
    rows: int = 1024  # rows of a request
    pixels: int = 16_000_000  # of an uploaded image, before it is resized
    waiting: int = 4096  # rows that wait for their turn; beyond, requests are refused at once
    batch: int = 256  # rows that are answered together
    seconds: float = 10.0  # from the first byte to the answer

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            check(value > 0, entry.name, value, "positive")
        check(self.waiting >= self.rows, "waiting", self.waiting, f"at least {self.rows}, the rows of one request")


class Refused(Exception):
    """A request that is not answered: the status, and in words why."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


def too_large(what: str, found: object, most: object) -> Refused:
    return Refused(413, f"{what} is {found}; at most {most} is taken.")


def unusable(detail: str) -> Refused:
    return Refused(422, detail)


def busy(detail: str) -> Refused:
    return Refused(503, detail)
