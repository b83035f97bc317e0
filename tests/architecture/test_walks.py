"""How far a reader must walk: the files that one call of the front door goes through, and how often it changes them.

Traced at run time, not guessed: only functions of crfield count, and a switch is the entry of a function that lies in
another file than the crfield function that called it. Module-level code is no walk: everything is called once before.
What the optimiser does between its first and its last evaluation is its own walk.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import crfield
from crfield.core.parameters import declared_parameters
from tests.cases.estimators import FRONT_DOOR

SOURCE = str(Path(crfield.__file__).parent) + "/"
SENTENCES = ["the dog barks", "a cat sleeps", "Tom sees the cat", "dogs bark", "the old cat sees Tom", "a dog"] * 2
X = [[{"word": word, "title": word.istitle()} for word in sentence.split()] for sentence in SENTENCES]
TAGS = {"the": "D", "a": "D", "barks": "V", "bark": "V", "sleeps": "V", "sees": "V"}
Y = [[TAGS.get(word, "N") for word in sentence.split()] for sentence in SENTENCES]


class Entry(NamedTuple):
    """The entry of a function, and the file that it was called from; None for the test itself."""

    file: str
    function: str
    caller: str | None

    @property
    def switch(self) -> bool:
        return self.caller is not None and self.caller != self.file


def own_file(frame: FrameType | None) -> str | None:
    """The file of the nearest frame of crfield."""
    while frame is not None and not frame.f_code.co_filename.startswith(SOURCE):
        frame = frame.f_back
    return None if frame is None else frame.f_code.co_filename[len(SOURCE) :]


def walked(call: Callable[[], Any]) -> list[Entry]:
    """Every entry of a function of crfield during the call."""
    entries: list[Entry] = []

    def enter(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            file = frame.f_code.co_filename[len(SOURCE) :]
            entries.append(Entry(file, frame.f_code.co_qualname, own_file(frame.f_back)))

    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entries


def files(entries: list[Entry]) -> set[str]:
    return {entry.file for entry in entries}


def fit() -> crfield.ChainCRF:
    return crfield.ChainCRF().fit(X, Y)


def test_fitting_a_chain_is_a_short_walk() -> None:
    fit()
    entries = walked(fit)
    evaluations = [k for k, entry in enumerate(entries) if entry.function == "FusedChain.evaluate"]
    assert len(evaluations) > 3, "the optimiser's evaluations are not found"
    around = entries[: evaluations[0]] + entries[evaluations[-1] + 1 :]
    switches = [entry for entry in around if entry.switch]
    assert len(files(around)) <= 20, sorted(files(around))
    assert len(switches) <= 75, switches


def test_asking_a_chain_is_a_short_walk() -> None:
    model = fit()
    model.predict(X[:1])
    entries = walked(lambda: model.predict(X[:1]))
    assert len(files(entries)) <= 15, sorted(files(entries))
    assert sum(entry.switch for entry in entries) <= 25


def test_loading_a_chain_is_a_short_walk(tmp_path: Path) -> None:
    path = tmp_path / "chain.crfield"
    fit().save(path)
    crfield.load(path)
    entries = walked(lambda: crfield.load(path))
    assert len(files(entries)) <= 15, sorted(files(entries))
    assert sum(entry.switch for entry in entries) <= 50


def test_the_walk_sees_every_entry() -> None:
    """A file that is entered must be counted, or the limits say nothing."""
    entries = walked(lambda: crfield.ChainCRF(l2=-1.0).get_params())
    assert "core/estimator.py" in files(entries)
    assert any(entry.function == "Estimator.__new__" and not entry.switch for entry in entries)


def test_defaults_pass_their_checks() -> None:
    """`Estimator.check` does not look at a default, so every default is looked at here."""
    for front in FRONT_DOOR:
        for name, declared in declared_parameters(front.estimator).items():
            if declared.check is not None:
                declared.check(name, declared.default)
