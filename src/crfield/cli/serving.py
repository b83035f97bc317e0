"""How a served model reads: as the other verbs read for it, from a text that was sent instead of a file."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from crfield.cli.model import as_tagger, last_step, reads_of, roles_of, what_it_reads
from crfield.cli.reading import Format, Reads, read_for, read_unlabelled
from crfield.cli.scores import judge
from crfield.cli.sensors.answers import TableModel
from crfield.cli.sensors.options import Asked
from crfield.cli.sensors.roles import TRACKS, Roles
from crfield.data.tables import parse_table
from crfield.data.tokens import TokenColumns
from crfield.errors import CrfieldError, InputError
from crfield.estimators.base.fitted import fitted_of
from crfield.features.templates.template import Template
from crfield.report.replay import Replay
from crfield.serve.models import Manner, Reading, Served
from crfield.storage.files import read_bytes

_MOSTLY = 0.9
_FEW = 20_000  # frames of a replay
_MACRO = re.compile(r"%x\[\s*([+-]?\d+)\s*,\s*(\d+)\s*\]")


def manner_of(model: Any, path: str, *, threads: int | None = 1) -> Manner:
    """The form of a model's steps, and its way with texts."""
    last, roles = last_step(model), roles_of(model)
    if "n_jobs" in last.get_params(deep=False):
        last.set_params(n_jobs=threads)
    words = what_it_reads(model)
    if roles is not None:
        form = "tracks" if roles.format == TRACKS else "numbers"

        def read(text: bytes) -> Reading:
            return _table(model, roles, text)

        def replayed(text: bytes) -> Replay:
            return _replay(model, roles, text)

        return Manner(
            form, roles.columns, len(roles.columns), words, {}, read, replayed if form == "tracks" else None
        )
    encoder = getattr(fitted_of(last), "encoder", None)
    try:
        as_tagger(model, path, threads=threads)
    except CrfieldError:  # trained in Python, on what no text file holds
        kind = getattr(encoder, "kind", "matrix")
        width = encoder.widths.dense if encoder is not None and kind == "matrix" else 1
        return Manner("numbers" if kind in ("matrix", "transformed") else "records", (), max(width, 1), words)
    reads = reads_of(model)
    names: tuple[str, ...] = ()
    width = 1
    if reads.columns is not None:
        width = max(reads.columns.columns, default=0) + 1
        names = tuple(reads.source.get("columns", "").split(",")) if reads.source.get("columns") else ()
    form = "records" if reads.columns is None else "columns"
    shown = _template_words(reads.columns, names) if isinstance(reads.columns, Template) else {}
    return Manner(form, names, width, words, shown, lambda text: _lines(model, reads, text))


def _template_words(template: Template, names: tuple[str, ...]) -> dict[str, str]:
    r"""What each line of a template looks at.

    >>> _template_words(Template("U01:%x[-1,0]/%x[0,1]\nB"), ("word", "tag"))
    {'U01': 'word of the token before and tag here'}
    """
    places = {-2: "two before", -1: "of the token before", 0: "here", 1: "of the next token", 2: "two after"}
    out = {}
    for line in template.text.splitlines():
        name, sign, rest = line.partition(":")
        found = [(int(row), int(column)) for row, column in _MACRO.findall(rest)]
        if sign and found:
            columns = [names[c] if c < len(names) else f"column {c + 1}" for _, c in found]
            steps = [places.get(row, f"{abs(row)} {'before' if row < 0 else 'after'}") for row, _ in found]
            out[name.strip()] = " and ".join(f"{column} {step}" for column, step in zip(columns, steps))
    return out


def _lines(model: Any, reads: Reads, text: bytes) -> Reading:
    """Sequences of a text, and the labels in its last column where these are labels of the model."""
    stream = io.BytesIO(text)
    stream.name = "the text"
    X = read_unlabelled(reads, [stream], asked=Format.auto, columns=None)  # type: ignore[list-item]
    gold = None
    if isinstance(X, TokenColumns) and reads.columns is not None and X.width - 1 not in reads.columns.columns:
        known = {str(label): label for label in model.classes_.tolist()}
        last = [labels.tolist() for labels in X.column(-1)]
        met = [label in known for own in last for label in own]
        if sum(met) >= _MOSTLY * len(met):  # the rest are labels that the model has not met
            gold = [[known.get(label, label) for label in own] for own in last]
            X = X.split_column(-1)[0]
    return Reading(X, gold=gold)


def _asked(model: Any, roles: Roles, text: bytes) -> TableModel:
    table = parse_table(text.decode("utf-8"), file="the text")
    if not len(table):
        raise table.fault("expected a table with a header and rows, found nothing.")
    labelled = (roles.label or "label") in table.names
    return TableModel.of(model, roles, [table], Asked(), columns=None, label=None, labelled=labelled, threads=1)


def _table(model: Any, roles: Roles, text: bytes) -> Reading:
    asked = _asked(model, roles, text)
    windows = asked.windows
    gold = [own.tolist() for own in asked.y] if asked.recordings.y is not None else None
    per = 1.0 if windows is None else float(windows.rate * windows.hop)
    return Reading(asked.X, asked.recordings.names, gold, per)


def _replay(model: Any, roles: Roles, text: bytes) -> Replay:
    """The first recording of tracks as a game to watch, with predicted labels and marginals."""
    asked = _asked(model, roles, text)
    tracks = asked.X[0]
    places = np.array(tracks.positions, dtype=np.float64)
    if places.shape[2] < 2:
        raise InputError(f"a replay shows places of two axes, and these tracks have {places.shape[2]}.")
    places = _filled(places[:, :, :2])
    low, high = places.min(axis=(0, 1)), places.max(axis=(0, 1))
    centre, size = (low + high) / 2, np.maximum(high - low, 1e-9) * 1.1
    predicted = model.predict(tracks)[0].tolist()
    chances = model.predict_proba(tracks)[0] if hasattr(model, "predict_proba") else None
    gold = predicted if asked.recordings.y is None else asked.y[0].tolist()
    labels = [said if label is None else label for label, said in zip(gold, predicted)]
    classes = model.classes_.tolist()
    facts: dict[str, Any] = {"agents": tracks.agents}
    if {*map(str, [*classes, *labels])} <= {str(r) for r in range(len(tracks.agents))} == set(tracks.agents):
        # Labels name agents, so that these can be marked; agents that are numbers have a colour each.
        classes, labels, predicted, facts = [*map(int, classes)], [*map(int, labels)], [*map(int, predicted)], {}
    game = SimpleNamespace(
        positions=places - centre,
        labels=labels,
        rate=float(tracks.rate),
        field=(float(size[0]), float(size[1])),
        diameter=float(size.max()) / 25,
        **facts,
    )
    return Replay.of(
        game,
        predicted=predicted,
        marginals=chances,
        classes=classes,
        every=max(1, -(-len(places) // _FEW)),
        title=f"{len(tracks.agents)} agents, {len(places) / tracks.rate:.0f} s",
    )


def _filled(places: np.ndarray) -> np.ndarray:
    """Where agents are absent, the place where they were last seen, or will be first."""
    out = places.copy()
    for r in range(out.shape[1]):
        seen = np.isfinite(out[:, r]).all(axis=1)
        if not seen.any():
            out[:, r] = 0.0
            continue
        at = np.maximum.accumulate(np.where(seen, np.arange(len(out)), -1))
        out[:, r] = out[np.where(at < 0, int(np.argmax(seen)), at), r]
    return out


# ---------------------------------------------------------------------------------------------------- labelling


def pool_of(served: Served, path: str) -> Any:
    """The sequences of a file that are to be labelled; labels in it are not looked at."""
    if served.manner.read is None:
        raise InputError(
            f"{served.name} was trained in Python, on data that no text file holds: it cannot be labelled."
        )
    reading = served.manner.read(read_bytes(path))
    if served.manner.form == "tracks" or reading.per_step != 1.0:
        raise InputError(
            f"{served.name} labels {'tracks' if served.manner.form == 'tracks' else 'windows of samples'}, and the "
            "page is for sequences whose rows are the steps."
        )
    if not len(reading.X):
        raise InputError(f"{path}: expected sequences to label, found none.")
    return _narrow(reading.X, served.manner.width)


def _narrow(X: Any, width: int) -> Any:
    """Tokens without the columns that the model does not read: they may be the labels, which people are to give."""
    return TokenColumns(X.codes[:, :width], X.topology, X.alphabet) if isinstance(X, TokenColumns) else X


def labelled_data(model: Any, path: str | None, data: str) -> tuple[Any, list[list[Any]]]:
    """Labelled sequences of a file for a model."""
    roles = roles_of(model)
    if roles is not None:
        told = TableModel.of(model, roles, [data], Asked(), columns=None, label=None, labelled=True, threads=1)
        return told.X, [own.tolist() for own in told.y]
    reads = reads_of(model)
    found = read_for(reads, [data], asked=Format.auto, label_column=-1)
    known = {str(label): label for label in model.classes_.tolist()}
    width = 0 if reads.columns is None else max(reads.columns.columns, default=0) + 1
    return _narrow(found.X, width), [[known.get(label, label) for label in own.tolist()] for own in found.y]


def score_of(gold: list[list[Any]]) -> tuple[str, Callable[[Any, Any], float]]:
    """What held-out data are judged by: F1 of spans where labels are tags, else the share of right steps."""
    spans = judge(gold, gold).spans is not None

    def score(gold: Any, predicted: Any) -> float:
        told = judge(gold, predicted)
        return float(told.labels.accuracy if told.spans is None else told.spans.f1)

    return "span F1" if spans else "share of right steps", score
