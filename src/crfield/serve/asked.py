"""What a request asks for: sequences in one of four forms, and questions about them, checked before any work is done.

    columns    [["He", "PRP"], ["runs", "VBZ"]]     or plain words where the model reads one column
    records    [{"word": "He"}, {"word": "runs"}]   or lists of feature strings
    numbers    [[0.1, 2.5], [0.3, 2.4]]             null where a reading is missing
    text       the lines of a file, as the model's own files are

``sequence`` is one, ``sequences`` are many. Values inside the steps are judged by the library, which has the words
for what it cannot use; here is checked what could make an answer larger than its question.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.errors import CrfieldError, did_you_mean
from crfield.serve.models import Reading, Served
from crfield.serve.wire import Refusal, kind_of

MOST_STEPS = 200_000
MOST_NUMBERS = 2_000_000  # in an answer
MOST_PAIRS = 40_000_000  # steps × labels², which spans and doubts hold in memory
MOST_LABELLINGS = 100

DATA = ("model", "sequence", "sequences", "text")
PREDICT = (*DATA, "marginals", "n_best", "spans", "known", "doubt", "echo")
EXPLAIN = (*DATA, "step", "label", "against")


@dataclass(frozen=True, eq=False)
class Data:
    """The sequences of a request."""

    X: Any
    one: bool  # whether ``sequence`` was asked, so that answers are not lists of them
    steps: int
    reading: Reading | None = None  # where they came as a text


@dataclass(frozen=True, eq=False)
class Questions:
    """What is asked about them besides the labels."""

    marginals: bool = False
    n_best: int = 0
    spans: bool | str = False
    known: list[list[Any]] | None = None
    doubt: bool = False
    echo: bool = False


NOTHING = Questions()


def check_names(asked: dict[str, Any], known: tuple[str, ...]) -> None:
    """A Refusal where a request has a field that means nothing."""
    for name in asked:
        if name not in known:
            words = f"expected the fields {', '.join(known)}, got {name!r:.60}.{did_you_mean(name, known)}"
            raise Refusal(400, words, name[:60])


def data_of(asked: dict[str, Any], served: Served) -> Data:
    """The sequences of a request, in the form that the model reads."""
    given = [name for name in ("sequence", "sequences", "text") if name in asked]
    if len(given) != 1:
        raise Refusal(400, f"expected one of sequence, sequences and text, got {', '.join(given) or 'none'}.")
    name = given[0]
    value = asked[name]
    if name == "text":
        return _text(value, served)
    if type(value) is not list:
        raise Refusal(400, f"{name} must be a list, got {kind_of(value)}.", name)
    if name == "sequence":
        x = _sequence(value, served, name)
        _check_size(len(x))
        return Data([x], True, len(x))
    X = []
    for k, each in enumerate(value):
        if type(each) is not list:
            words = f"a sequence must be a list of steps, got {kind_of(each)}."
            raise Refusal(400, f"{words} One sequence alone is called sequence.", f"sequences[{k}]")
        X.append(_sequence(each, served, f"sequences[{k}]"))
    steps = sum(map(len, X))
    _check_size(steps)
    return Data(X, False, steps)


def _text(value: Any, served: Served) -> Data:
    if type(value) is not str:
        raise Refusal(400, f"text must be a text, got {kind_of(value)}.", "text")
    if served.manner.read is None:
        raise Refusal(
            422, f"{served.name} was trained in Python, on data that no text file holds: send sequences.", "text"
        )
    _check_size(value.count("\n") + 1)
    reading = with_words(lambda: served.manner.read(value.encode("utf-8")))
    return Data(reading.X, False, _steps(reading.X), reading)


def _steps(X: Any) -> int:
    """Steps, or samples, of all sequences."""
    topology, lengths = getattr(X, "topology", None), getattr(X, "lengths", None)
    if topology is not None:
        return int(topology.n_nodes)
    return sum(lengths) if lengths is not None else sum(map(len, X))


def with_words(call: Any) -> Any:
    """The outcome of a call; what the library refuses is refused in its words."""
    try:
        return call()
    except CrfieldError as error:
        raise refused(error) from None


def refused(error: CrfieldError) -> Refusal:
    """The refusal that says what the library says."""
    return Refusal(422, str(error), kind=type(error).__name__)


def _check_size(steps: int) -> None:
    if steps > MOST_STEPS:
        raise Refusal(413, f"a request may have {MOST_STEPS:,} steps, got {steps:,}. Send them in parts.")


def _sequence(value: list[Any], served: Served, where: str) -> Any:
    form = served.manner.form
    if form == "columns":
        if value and type(value[0]) is str:
            return _words(value, served, where)
        return value
    if form == "numbers":
        return _rows(value, served.manner.width, where)
    if form == "tracks":
        raise Refusal(422, f"{served.name} reads tracks: send them as text, a table of time, agent and place.", where)
    return value


def _words(value: list[Any], served: Served, where: str) -> list[list[str]]:
    """Plain words as rows of one column."""
    wrong = next((k for k, word in enumerate(value) if type(word) is not str), None)
    if wrong is not None:
        raise Refusal(400, f"a word must be a text, got {kind_of(value[wrong])}.", f"{where}[{wrong}]")
    if served.manner.width > 1:
        names = ", ".join(served.manner.columns) or f"{served.manner.width} columns"
        words = f"{served.name} reads {names} of every token: send rows such as ['He', 'PRP'], got the word "
        raise Refusal(422, f"{words}{value[0]!r:.40}.", f"{where}[0]")
    return [[word] for word in value]


def _rows(value: list[Any], width: int, where: str) -> np.ndarray:
    """Rows of numbers as an array (T, D)."""
    if not value:
        return np.zeros((0, width))
    if width == 1 and type(value[0]) is not list:
        value = [[number] for number in value]
    rows: list[list[float]] = []
    for k, row in enumerate(value):
        if type(row) is not list:
            raise Refusal(400, f"a step must be a list of numbers, got {kind_of(row)}.", f"{where}[{k}]")
        if len(row) != len(value[0]):
            words = f"expected {len(value[0])} numbers as in the step before, got {len(row)}."
            raise Refusal(400, words, f"{where}[{k}]")
        for j, number in enumerate(row):
            if number is not None and type(number) not in (int, float):
                raise Refusal(400, f"expected a number, got {kind_of(number)}.", f"{where}[{k}][{j}]")
        rows.append(row)
    try:
        return np.array(rows, dtype=np.float64)
    except (OverflowError, ValueError):
        raise Refusal(400, "a number is too large.", where) from None


# ---------------------------------------------------------------------------------------------------- questions


def questions_of(asked: dict[str, Any], data: Data, served: Served) -> Questions:
    """What is asked besides the labels; a Refusal where the answer would be too large or there is none."""
    marginals, doubt, echo = (_flag(asked, name) for name in ("marginals", "doubt", "echo"))
    n_best, spans = asked.get("n_best", 0), asked.get("spans", False)
    if type(n_best) is not int or not 0 <= n_best <= MOST_LABELLINGS:
        raise Refusal(400, f"n_best must be a whole number from 0 to {MOST_LABELLINGS}.", "n_best")
    if type(spans) not in (bool, str):
        raise Refusal(400, f"spans must be true, false or the name of a scheme, got {kind_of(spans)}.", "spans")
    labels = len(served.labels)
    numbers = data.steps * (labels * marginals + n_best)
    if numbers > MOST_NUMBERS:
        words = f"the answer would hold {numbers:,} numbers and labels, and may hold {MOST_NUMBERS:,}."
        raise Refusal(413, f"{words} Send fewer steps, or ask less.")
    if (doubt or spans) and data.steps * labels**2 > MOST_PAIRS:
        raise Refusal(413, f"{data.steps:,} steps of {labels} labels are too many at once here. Send them in parts.")
    asks = {"predict_proba": marginals, "predict_n_best": n_best, "predict_spans": spans, "entropy": doubt}
    for method, wanted in asks.items():
        if wanted and not hasattr(served.model, method):
            raise Refusal(422, f"{served.name} is a {type(served.model).__name__}, which has no {method}.")
    return Questions(marginals, n_best, spans, _known(asked, data, served), doubt, echo)


def _flag(asked: dict[str, Any], name: str) -> bool:
    value = asked.get(name, False)
    if type(value) is not bool:
        raise Refusal(400, f"{name} must be true or false, got {kind_of(value)}.", name)
    return value


def _known(asked: dict[str, Any], data: Data, served: Served) -> list[list[Any]] | None:
    value = asked.get("known")
    if value is None:
        return None
    if type(value) is not list:
        raise Refusal(400, f"known must be a list of labels, got {kind_of(value)}.", "known")
    listed = [value] if data.one else value
    if len(listed) != len(data.X):
        raise Refusal(
            400, f"known must have an entry for each of {len(data.X)} sequences, got {len(listed)}.", "known"
        )
    return [
        known_labels(own, served, "known" if data.one else f"known[{k}]", len(data.X[k]))
        for k, own in enumerate(listed)
    ]


def known_labels(own: Any, served: Served, where: str, steps: int) -> list[Any]:
    """Labels of a sequence as far as they are known: a label, a list of those possible, or null for each step."""
    if type(own) is not list or len(own) != steps:
        got = f"{len(own)}" if type(own) is list else kind_of(own)
        raise Refusal(400, f"expected a list of {steps} labels, null where one is not known, got {got}.", where)
    out: list[Any] = []
    for t, said in enumerate(own):
        if said is None:
            out.append(None)
        elif type(said) is list:
            out.append({label_of(each, served, f"{where}[{t}]") for each in said})
        else:
            out.append(label_of(said, served, f"{where}[{t}]"))
    return out


def label_of(value: Any, served: Served, where: str) -> Hashable:
    """The model's label that JSON has this value for."""
    try:
        return served.of_json[type(value), value]
    except (KeyError, TypeError):
        known = ", ".join(map(str, served.labels[:20])) + (", …" if len(served.labels) > 20 else "")
        shown = f"{value!r:.60}" if type(value) in (str, int) else kind_of(value)
        raise Refusal(422, f"the model has no label {shown}; it has {known}.", where) from None
