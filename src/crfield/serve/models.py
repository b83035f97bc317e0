"""The models that are served: each from a file, loaded again when that is replaced, never in the middle of a request.

A `Served` model is a value: the estimator, a tagger for single sequences, the words of its labels. A request takes
the value that is there when it begins and keeps it to the end. `Shelf.refresh` looks at the files; a new one is read
beside the old model and then takes its place in one assignment. A file that cannot be read leaves the old model where
it is, and `about` says why.

How a model reads text (which columns, which tables) is no matter of the server: whoever starts it hands over a
`Manner` of each.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from crfield.core.estimator import ClassifierMixin
from crfield.errors import CrfieldError, InputError
from crfield.estimators.base.fitted import fitted_of
from crfield.estimators.base.load import load

FORMS = ("columns", "records", "numbers", "tracks")


@dataclass(frozen=True, eq=False)
class Reading:
    """Sequences that were read from a text."""

    X: Any
    names: Sequence[str] | None = None  # of recordings
    gold: list[list[Any]] | None = None  # labels that the text has
    per_step: float = 1.0  # rows of X for each label


@dataclass(frozen=True, eq=False)
class Manner:
    """How a model reads: the form of its steps, the names of their columns, and its way with texts."""

    form: str  # one of FORMS
    columns: tuple[str, ...] = ()  # names, as far as they are known
    width: int = 1  # columns of a token that are read, or readings of a row
    words: str = ""  # for people
    template: Mapping[str, str] = field(default_factory=dict)  # what each line of a template looks at, in words
    read: Callable[[bytes], Reading] | None = None
    replay: Callable[[bytes], Any] | None = None  # tracks as a `crfield.report.replay.Replay`


@dataclass(frozen=True, eq=False)
class Served:
    """A loaded model with what requests need of it."""

    name: str
    model: Any
    manner: Manner
    version: int
    loaded: float
    tag: Callable[[Any], list[Hashable]]
    quick: bool  # whether a sequence is labelled by one compiled call
    labels: list[Hashable]
    texts: dict[Hashable, str]  # the JSON of every label
    of_json: dict[tuple[type, Any], Hashable]  # labels by what JSON has for them
    head: str  # how an answer begins

    @classmethod
    def of(cls, name: str, model: Any, manner: Manner, version: int) -> Served:
        """The model, if it labels the steps of sequences."""
        refuse_others(model, name)
        tagger = model.tagger() if hasattr(model, "tagger") else None
        labels = model.classes_.tolist()
        values = [json_label(label) for label in labels]
        return cls(
            name,
            model,
            manner,
            version,
            time.time(),
            (lambda x: model.predict([x])[0].tolist()) if tagger is None else tagger.tag,
            tagger is not None and manner.form in ("columns", "records"),
            labels,
            {label: json.dumps(value, ensure_ascii=False) for label, value in zip(labels, values)},
            {(type(value), value): label for label, value in zip(labels, values)},
            f'{{"model":{json.dumps(name, ensure_ascii=False)},"version":{version},"labels":',
        )

    @property
    def columns(self) -> list[Any]:
        """The labels as JSON has them, in the order of probabilities."""
        return [json_label(label) for label in self.labels]


def json_label(label: Hashable) -> Any:
    """A label as a JSON value: texts, whole numbers and booleans as they are, whatever else as text.

    >>> json_label("O"), json_label(3), json_label(("a", 1))
    ('O', 3, "('a', 1)")
    """
    return label if isinstance(label, str | bool) or type(label) is int else str(label)


def refuse_others(model: Any, name: str) -> None:
    """InputError unless a model labels the steps of sequences."""
    last = model[-1] if hasattr(model, "steps") else model
    encoder = getattr(fitted_of(last), "encoder", None)
    if getattr(encoder, "kind", "") == "graph" or isinstance(last, ClassifierMixin) or not hasattr(model, "log_prob"):
        raise InputError(
            f"{name} holds a {type(model).__name__}, which does not label the steps of sequences; only such models "
            "are served. Use it from Python: crfield.load(path).predict(X)."
        )


@dataclass(eq=False)
class Place:
    """A place on the shelf: the file, the model that is there now, and what went wrong with a newer one."""

    name: str
    path: str | None
    served: Served
    seen: tuple[int, ...]
    failed: str | None = None
    held: threading.Lock = field(default_factory=threading.Lock)


class Shelf:
    """Models by name; the first is the one that is meant where none is named."""

    def __init__(self, manner_of: Callable[[Any, str], Manner]) -> None:
        self.manner_of = manner_of
        self.places: dict[str, Place] = {}

    def put(self, name: str, path: str) -> Place:
        """Load the model of a file and give it a name."""
        if name in self.places:
            raise InputError(f"two models are called {name!r}. Rename a file: names tell them apart in requests.")
        seen = _state(path)
        model = load(path)
        place = Place(name, path, Served.of(name, model, self.manner_of(model, path), 1), seen)
        self.places[name] = place
        return place

    @property
    def first(self) -> Place:
        """The model of requests that name none."""
        return next(iter(self.places.values()))

    def refresh(self) -> list[str]:
        """Load what was replaced on disk; a line for whatever was done."""
        said = []
        for place in self.places.values():
            if place.path is None:
                continue
            seen = _state(place.path)
            if seen == place.seen or not seen:
                continue
            try:
                model = load(place.path)
                made = Served.of(place.name, model, self.manner_of(model, place.path), place.served.version + 1)
            except (CrfieldError, OSError, MemoryError) as error:
                place.failed = str(error) or type(error).__name__
                said.append(f"{place.path} was replaced and cannot be used; the old model goes on. {place.failed}")
            else:
                self.swap(place, made)
                said.append(f"{place.path} was replaced: {place.name} is version {made.version} now")
            place.seen = seen
        return said

    @staticmethod
    def swap(place: Place, made: Served) -> None:
        """Put a model in the place of another; requests that are under way keep the one they have."""
        with place.held:
            place.served, place.failed = made, None

    def about(self) -> list[dict[str, Any]]:
        """What there is to say of each, for JSON."""
        return [_about(place) for place in self.places.values()]


def _about(place: Place) -> dict[str, Any]:
    served = place.served
    last = served.model[-1] if hasattr(served.model, "steps") else served.model
    asked = {
        "marginals": "predict_proba",
        "n_best": "predict_n_best",
        "spans": "predict_spans",
        "doubt": "entropy",
        "explain": "explain",
        "learn": "partial_fit",
    }
    return {
        "name": place.name,
        "kind": type(served.model).__name__,
        "version": served.version,
        "loaded": round(served.loaded, 3),
        "labels": served.columns,
        "form": served.manner.form,
        "columns": list(served.manner.columns),
        "width": served.manner.width,
        "reads": served.manner.words,
        "reads_text": served.manner.read is not None,
        "template": dict(served.manner.template),
        "replays": served.manner.replay is not None,
        "can": [word for word, method in asked.items() if hasattr(last, method) and hasattr(served.model, method)],
        "failed": place.failed,
    }


def _state(path: str) -> tuple[int, ...]:
    """What tells one file from another of the same name; nothing where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size
