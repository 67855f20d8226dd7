"""A service that all tests share which change nothing in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

import httpx

from support.fake_service import fake_service


@pytest.fixture(scope="session")
def client() -> Iterator[httpx.Client]:
    """A client of the fake service with its usual settings."""
    with fake_service() as (client, _):
        yield client
