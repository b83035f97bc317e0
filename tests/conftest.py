"""Fixtures of all tests: a test that asks for `body` runs on both bodies of the kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from crfield.kernels import choice

settings.register_profile("no deadline", deadline=None)  # a busy machine is slow, which says nothing of the code
settings.load_profile("no deadline")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is slow comes first, with all of its file: begun last, it would be waited for by idle workers."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(params=["native", "numpy"])
def body(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test on the compiled and on the NumPy body of the kernels."""
    try:
        with choice.use(request.param):
            choice.body("chain")
            yield request.param
    except ImportError:
        pytest.skip("the compiled kernels are not built here")
