"""Fixtures of all tests: a test that asks for `body` runs on both bodies of the kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from crfield.kernels import choice


@pytest.fixture(params=["native", "numpy"])
def body(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test on the compiled and on the NumPy body of the kernels."""
    try:
        with choice.use(request.param):
            choice.body("chain")
            yield request.param
    except ImportError:
        pytest.skip("the compiled kernels are not built here")
