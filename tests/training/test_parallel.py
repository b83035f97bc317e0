"""Trainings side by side: their results, and what becomes of the others where one fails."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from crfield.training.parallel import train_each


def test_one_that_fails_ends_the_others() -> None:
    told = []

    def waits(stopped: Callable[[], bool]) -> int:
        end = time.monotonic() + 60
        while not stopped() and time.monotonic() < end:
            time.sleep(0.001)
        told.append(stopped())
        return 0

    def fails(stopped: Callable[[], bool]) -> int:
        raise ValueError("no such data")

    with pytest.raises(ValueError, match="no such data"):
        list(train_each([waits, fails, fails], n_jobs=2))
    assert told == [True]


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_whoever_looks_no_further_ends_them(n_jobs: int) -> None:
    begun = []

    def training(stopped: Callable[[], bool]) -> int:
        begun.append(1)
        return len(begun)

    results = train_each([training] * 20, n_jobs=n_jobs)
    number, found = next(results)
    assert 0 <= number < 20
    assert found >= 1
    results.close()
    after = len(begun)
    time.sleep(0.01)
    assert len(begun) == after
