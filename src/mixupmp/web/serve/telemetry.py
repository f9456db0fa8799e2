"""The server's Prometheus metrics."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from mixupmp.core.version import __version__

CONTENT_TYPE = CONTENT_TYPE_LATEST
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Telemetry:
    """Counters of one app, in a registry of its own: two apps in a process do not share them."""

    def __init__(self, runtime: str) -> None:
        self.registry = mine = CollectorRegistry()
        self.requests = Counter("mixupmp_requests_total", "Requests to /predict by status.", ["status"], registry=mine)
        self.rows = Counter("mixupmp_rows_total", "Rows answered.", registry=mine)
        self.abstained = Counter("mixupmp_abstained_total", "Rows answered with an abstention.", registry=mine)
        self.seconds = Histogram("mixupmp_seconds", "Seconds from request to answer.", buckets=SECONDS, registry=mine)
        self.batches = Histogram("mixupmp_batch_rows", "Rows computed together.", buckets=ROWS, registry=mine)
        self.waiting = Gauge("mixupmp_waiting_rows", "Rows that wait for an answer.", registry=mine)
        about = Gauge("mixupmp_info", "What is served.", ["version", "runtime"], registry=mine)
        about.labels(__version__, runtime).set(1)

    def text(self) -> bytes:
        return generate_latest(self.registry)
