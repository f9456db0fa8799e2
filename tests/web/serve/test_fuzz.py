from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import httpx
import pytest

from mixupmp.web.serve import Limits
from mixupmp.web.serve.app import create_app

from .fuzz import bodies
from .live import served
from .models import image_model

schemathesis: Any = pytest.importorskip("schemathesis")


def _conforms(examples: int) -> None:
    """Every operation of the OpenAPI description, with generated requests: no 500, and answers as described."""
    from hypothesis import HealthCheck, given, settings
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

    with served(create_app(image_model(), Limits(body=100_000))) as address:
        schema = schemathesis.openapi.from_url(address + "openapi.json")
        for found in schema.get_all_operations():
            operation = found.ok()

            @given(case=operation.as_strategy())
            @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
            def holds(case: Any) -> None:
                case.call_and_validate(
                    checks=[not_a_server_error, response_schema_conformance, status_code_conformance]
                )

            holds()


def test_generated_requests_get_answers_as_described() -> None:
    _conforms(10)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_generated_requests_get_answers_as_described() -> None:
    _conforms(400)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_thousand_bodies_break_nothing() -> None:
    statuses: Counter[int] = Counter()

    async def ask(address: str) -> None:
        async with httpx.AsyncClient(base_url=address, timeout=60) as client:
            waiting = iter(bodies(10_000, seed=7))

            async def one_by_one() -> None:
                for kind, body in waiting:
                    headers = {"content-type": kind}
                    answer = await client.post("/predict?resize=true", content=body, headers=headers)
                    assert answer.json()
                    statuses[answer.status_code] += 1

            await asyncio.gather(*(one_by_one() for _ in range(8)))

    with served(create_app(image_model(), Limits(body=100_000))) as address:
        asyncio.run(ask(address))
    print(f"\n{dict(statuses)}")
    assert sum(statuses.values()) == 10_000
    assert set(statuses) <= {200, 413, 415, 422, 503}
    assert statuses[200] > 500, "some must be good, or nothing was tried"
