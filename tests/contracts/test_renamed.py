"""A name that has a new one works, and says so once at the place that uses it."""

from __future__ import annotations

import warnings

import pytest

import crfield
from crfield.errors import CrfieldWarning, RenamedWarning, warn_renamed


def old_name() -> None:
    warn_renamed("old_name", "new_name", gone="9.9")


def test_the_warning_names_the_new_one_and_the_place_of_use() -> None:
    with pytest.warns(RenamedWarning, match=r"old_name is now new_name; .* 9\.9") as caught:
        old_name()
    assert caught[0].filename == __file__
    assert issubclass(RenamedWarning, FutureWarning)  # shown by default, unlike DeprecationWarning
    assert issubclass(RenamedWarning, CrfieldWarning)


def test_an_old_name_of_the_package_is_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(crfield._RENAMED, "OldChain", ("ChainCRF", "9.9"))
    with pytest.warns(RenamedWarning, match=r"crfield\.OldChain is now crfield\.ChainCRF") as caught:
        assert crfield.OldChain is crfield.ChainCRF
    assert caught[0].filename == __file__
    assert "OldChain" not in dir(crfield)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert crfield.ChainCRF is not None


def test_what_is_renamed_exists() -> None:
    assert all(new in crfield.__all__ and old not in crfield.__all__ for old, (new, _) in crfield._RENAMED.items())
