"""Fixtures for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ranks import Pool


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """The one pool of Gloo workers; see `ranks.pool`."""
    pool = Pool()
    yield pool
    pool.close()
