"""Snakes: pairs that see colours pass the count on, plain pairs do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from studies.graphs.snakes import STUDY as snakes
from studies.graphs.snakes import read_snakes
from tests.real.conftest import folder


@pytest.fixture(scope="module")
def here(data: Path) -> str:
    """The folder in which the snakes lie."""
    folder(data, "snakes")
    return str(data)


def test_sizes(here: str) -> None:
    made = read_snakes(here)
    assert {part: len(pictures) for part, (pictures, _) in made.items()} == {"train": 200, "test": 100}
    for pictures, labels in made.values():
        assert all(x.shape == (*y.shape, 3) for x, y in zip(pictures, labels))
        assert all(sorted(y[y > 0].tolist()) == list(range(1, 11)) for y in labels), "a snake has ten cells"


def test_colours_on_pairs_are_what_matters(here: str) -> None:
    found = snakes(data=here, quick=True)
    assert len(found.claims) == 4
    assert all(claim.holds for claim in found.claims), str(found)
    assert all(row[-1] for row in found.rows), "all trainings converge"
