"""Real data lie in the folder that CRFIELD_DATA names; without it these tests are skipped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder with the corpora."""
    named = os.environ.get("CRFIELD_DATA")
    if not named:
        pytest.skip("CRFIELD_DATA does not name a folder with real data")
    if not Path(named).is_dir():
        pytest.fail(f"CRFIELD_DATA names {named}, which is not a folder")
    return Path(named)


def folder(data: Path, name: str) -> Path:
    """One corpus in it."""
    if not (data / name).is_dir():
        pytest.skip(f"{name} is not in CRFIELD_DATA")
    return data / name
