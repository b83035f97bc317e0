"""The sequences that wait for labels: who looks at which, in what order, and what was said of them.

A sequence is *leased* to the person who is shown it, for some minutes, so that two people are never asked the same at
the same time. Whoever answers after the lease has passed is still heard, unless somebody else was quicker: the store
tells by versions, so nothing is ever overwritten. Leases are in memory, since only answers must outlive the process.

The order is that of doubt (`rank_for_labelling`: entropy for a step) by the model that is served at the time; it is
made anew whenever a better model has taken over.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crfield.errors import CrfieldError
from crfield.estimators.active_learning import rank_for_labelling
from crfield.serve.answers import shown_steps
from crfield.serve.asked import label_of, with_words
from crfield.serve.models import Place, Served, json_label
from crfield.serve.wire import Refusal, kind_of
from crfield.storage.label_store import Answer, AnswerConflict, LabelStore

LEASE = 600.0  # seconds
MOST_RANKED = 5_000  # sequences whose doubt is measured at a time
_DIGITS = 4


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Labelled sequences that nobody is asked about, and what makes a score of predictions for them."""

    X: Any
    y: Sequence[Any]
    name: str  # of the score
    score: Callable[[Sequence[Any], Sequence[Any]], float]


def digest_of(X: Any) -> str:
    """What tells these sequences from others."""
    found = hashlib.sha256()
    for k in range(len(X)):
        x = X[k]
        found.update(x.tobytes() if isinstance(x, np.ndarray) else json.dumps(shown_steps(x)).encode())
        found.update(b"\n")
    return found.hexdigest()


def text_steps(x: Any) -> list[list[str]]:
    """The steps of a sequence as columns of text, for the store."""
    return [[cell if isinstance(cell, str) else f"{cell:g}" for cell in row] for row in shown_steps(x)]


@dataclass(eq=False)
class Pool:
    """Sequences, leases and the order in which they are asked about."""

    X: Any
    place: Place
    store: LabelStore
    more_labels: tuple[Any, ...] = ()  # that the model does not know yet
    order: list[int] = field(default_factory=list)
    doubts: dict[int, float] = field(default_factory=dict)
    leases: dict[int, tuple[str, float]] = field(default_factory=dict)
    skipped: dict[str, set[int]] = field(default_factory=dict)  # by person
    held: threading.Lock = field(default_factory=threading.Lock)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.answered = {answer.sequence for answer in self.store.answers()}
        self.rank(self.place.served)

    @property
    def labels(self) -> list[Any]:
        """What a step may be called, as JSON has it."""
        known = self.place.served.columns
        return known + [label for label in map(json_label, self.more_labels) if label not in known]

    def rank(self, served: Served) -> None:
        """Put the sequences without an answer in the order of doubt."""
        left = [k for k in range(len(self.X)) if k not in self.answered and len(self.X[k])]
        if len(left) > MOST_RANKED:
            chosen = np.random.default_rng(0).choice(len(left), MOST_RANKED, replace=False)
            left = [left[k] for k in np.sort(chosen)]
        by = "entropy" if hasattr(served.model, "entropy") else "least_confidence"
        try:
            told = rank_for_labelling(served.model, [self.X[k] for k in left], by=by) if left else None
        except CrfieldError:  # a model that cannot doubt: as they come
            told = None
        order = left if told is None else [left[k] for k in told.numbers.tolist()]
        doubts = {} if told is None else dict(zip(order, told.doubts.tolist()))
        with self.held:
            self.order, self.doubts = order, doubts

    # ------------------------------------------------------------------ questions of people

    def next(self, person: str) -> dict[str, Any] | None:
        """The most doubtful sequence that nobody looks at, leased; None where there is none left."""
        with self.held:
            now = self.clock()
            self.leases = {k: lease for k, lease in self.leases.items() if lease[1] > now}
            number = next(
                (k for k, (who, _) in self.leases.items() if who == person and k not in self.answered), None
            )
            if number is None:
                passed = self.skipped.get(person, set())
                free = (k for k in self.order if k not in self.answered and k not in self.leases and k not in passed)
                number = next(free, None)
            if number is None:
                return None
            self.leases[number] = (person, now + LEASE)
        return self.item(number)

    def open(self, number: Any, person: str) -> dict[str, Any]:
        """A sequence that was answered already, or any other by its number, to be looked at again."""
        number = self.number(number)
        with self.held:
            self._lease(number, person)
        return self.item(number)

    def _lease(self, number: int, person: str) -> None:
        """Give the sequence to a person, unless another one has it."""
        now = self.clock()
        who, until = self.leases.get(number, (person, 0.0))
        if who != person and until > now:
            raise Refusal(409, "somebody else is looking at this sequence.", "sequence", until=round(until - now))
        self.leases[number] = (person, now + LEASE)

    def item(self, number: int) -> dict[str, Any]:
        """A sequence for the page: steps, what the model thinks, what was said before."""
        served, x, there = self.place.served, self.X[number], self.store.newest(number)
        model = served.model
        labels = [json_label(label) for label in model.predict([x])[0].tolist()]
        told: dict[str, Any] = {
            "sequence": number,
            "version": 0 if there is None else there.version,
            "answer": None if there is None else there.labels,
            "person": None if there is None else there.person,
            "steps": shown_steps(x),
            "labels": labels,
            "model_version": served.version,
            "doubt": self.doubts.get(number),
            "seconds": LEASE,
        }
        if hasattr(model, "predict_proba"):
            told["probabilities"] = np.round(model.predict_proba([x])[0], _DIGITS).tolist()
            told["classes"] = served.columns
        return told

    def number(self, value: Any) -> int:
        """The number of a sequence that a request names."""
        if type(value) is not int or not 0 <= value < len(self.X):
            got = value if type(value) is int else kind_of(value)
            raise Refusal(400, f"expected the number of a sequence, 0 … {len(self.X) - 1}, got {got}.", "sequence")
        return value

    def answer(self, person: str, asked: dict[str, Any]) -> Answer:
        """Keep what a person said; 409 with what is there where another was quicker."""
        number, version = self.number(asked.get("sequence")), asked.get("version")
        if type(version) is not int or version < 0:
            raise Refusal(
                400, "version must be a whole number: that of the answer to follow, 0 for the first.", "version"
            )
        x = self.X[number]
        labels = self._labels(asked.get("labels"), len(x))
        with self.held:
            who, until = self.leases.get(number, (person, 0.0))
            if who != person and until > self.clock():
                raise Refusal(
                    409, "somebody else is looking at this sequence.", "sequence", there=self._there(number)
                )
        said = [(label, guess) for label, guess in zip(labels, self._guesses(x)) if label is not None]
        agreement = sum(label == guess for label, guess in said) / len(said) if said else None
        try:
            made = self.store.answer(number, version, person, labels, text_steps(x), agreement)
        except AnswerConflict:
            raise Refusal(
                409, "another answer is there already; nothing was overwritten.", "version", there=self._there(number)
            ) from None
        with self.held:
            self.answered.add(number)
            self.leases.pop(number, None)
        return made

    def _labels(self, value: Any, steps: int) -> list[Any]:
        if type(value) is not list or len(value) != steps:
            got = len(value) if type(value) is list else kind_of(value)
            raise Refusal(
                400, f"labels must be a list of {steps}, null where a step is left open, got {got}.", "labels"
            )
        if all(label is None for label in value) and steps:
            raise Refusal(400, "no step has a label: pass the sequence over, or label at least one.", "labels")
        known = set(map(json_label, self.more_labels))
        for t, label in enumerate(value):
            if label is not None and not (type(label) in (str, int, bool) and label in known):
                label_of(label, self.place.served, f"labels[{t}]")
        return list(value)

    def _guesses(self, x: Any) -> list[Any]:
        return [json_label(label) for label in with_words(lambda: self.place.served.model.predict([x]))[0].tolist()]

    def _there(self, number: int) -> dict[str, Any] | None:
        there = self.store.newest(number)
        return None if there is None else {"version": there.version, "person": there.person, "labels": there.labels}

    def skip(self, person: str, value: Any) -> None:
        """Give a sequence back, and do not show it to this person again."""
        number = self.number(value)
        with self.held:
            if self.leases.get(number, ("", 0.0))[0] == person:
                del self.leases[number]
            self.skipped.setdefault(person, set()).add(number)
            if len(self.skipped) > 1_000:
                self.skipped.pop(next(iter(self.skipped)))
