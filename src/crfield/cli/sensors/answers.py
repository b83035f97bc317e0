"""Trained models and tables: which they read, and labels on their way back to the rows they belong to."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import typer

from crfield.cli.messages import note
from crfield.cli.model import WrongVerb
from crfield.cli.reading import Format
from crfield.cli.sensors.options import Asked, listed
from crfield.cli.sensors.recordings import Reader, Recordings, Rows, read_tables
from crfield.cli.sensors.roles import TRACKS, Roles
from crfield.data.tables import Table
from crfield.errors import InputError
from crfield.estimators.base.facts import last_step
from crfield.metrics import segment_f1, token_accuracy
from crfield.metrics.segment_scores import edit_score
from crfield.report.alignment import pad, width


@dataclass(frozen=True, eq=False)
class TableModel:
    """A model that was trained on tables, and the table that it is asked about."""

    model: Any
    recordings: Recordings
    windows: Any = None

    @classmethod
    def of(
        cls,
        model: Any,
        roles: Roles,
        sources: Sequence[str | Table],
        asked: Asked,
        *,
        columns: str | None,
        label: str | None,
        labelled: bool,
        threads: int | None = None,
    ) -> TableModel:
        """The model with what it reads in some files; the options say where they differ from those of training."""
        last = last_step(model).set_params(n_jobs=threads)
        catalogue = last.features if roles.format == TRACKS else None
        windows = model[0] if last is not model else None
        told = {name: value for name in ("time", "group") if (value := getattr(asked, name)) is not None}
        if label is not None:
            told["label"] = label
        if columns is not None:
            chosen = listed(columns) or []
            if len(chosen) != len(roles.columns):
                raise typer.BadParameter(
                    f"--columns must name {len(roles.columns)} columns in the order of {', '.join(roles.columns)}."
                )
            told["columns"] = tuple(chosen)
        tables = read_tables([s for s in sources if isinstance(s, str)])
        tables += [s for s in sources if not isinstance(s, str)]  # read already
        for table in tables:
            for name, value in told.items():
                for column in value if name == "columns" else [value]:
                    table.column(column)
            if roles.group is not None and asked.group is None and roles.group not in table.names:
                note(f"{table.file} has no column {roles.group!r}: it is one recording")
        reader = Reader(
            replace(roles, **told),
            only=None if asked.only is None else tuple(listed(asked.only) or ()),
            labelled=labelled,
            sampled=windows is not None,
            rate=None if windows is None else windows.rate,
            agents=None if catalogue is None else catalogue.words.agents,
            lenient=True,
        )
        found = reader.read(tables)
        known = getattr(last, "rate", None)
        if roles.format == TRACKS and known and found.rate and abs(found.rate - known) > 0.01 * known:
            raise InputError(
                f"the model was trained on {known:.6g} steps a second, and {tables[0].file} has {found.rate:.6g}. "
                "Windows and lags are counted in steps: bring the rows to that rate first."
            )
        return cls(model, found, windows)

    @property
    def X(self) -> Any:
        """What the model reads."""
        return self.recordings.X

    @cached_property
    def y(self) -> list[np.ndarray]:
        """A label, or None, for each step."""
        y = self.recordings.y
        assert y is not None  # asked for with labelled=True
        return y if self.windows is None else self.windows.labels(y)

    def tagged(self, *, marginals: bool) -> bytes:
        """The tables with the predicted label of each row, and with ``marginals`` its probability, as CSV."""
        predicted = [labels.tolist() for labels in self.model.predict(self.X)]
        chances = None
        if marginals:
            code = {label: k for k, label in enumerate(self.model.classes_.tolist())}
            chances = [
                table[np.arange(len(own)), [code[label] for label in own]]
                for own, table in zip(predicted, self.model.predict_proba(self.X))
            ]
        out = io.StringIO()
        for number, rows in enumerate(self.recordings.rows):
            table = rows.table
            writer = csv.writer(out, delimiter=table.separator, lineterminator="\n")
            if not number:
                extra = [_free("predicted", table.names)] + [_free("probability", table.names)] * marginals
                writer.writerow([*table.names, *extra])
            elif table.names != self.recordings.rows[0].table.names:
                raise table.fault("the columns differ from those of the first table. Tag it by itself.")
            cells = zip(*(table.cells[name] for name in table.names))
            for row, (recording, step) in zip(cells, self._steps(rows, predicted)):
                found = step >= 0
                more = [str(predicted[recording][step]) if found else ""]
                if chances is not None:
                    more.append(f"{chances[recording][step]:.6f}" if found else "")
                writer.writerow([*row, *more])
        return out.getvalue().encode()

    def _steps(self, rows: Rows, predicted: Sequence[Sequence[Any]]) -> list[tuple[int, int]]:
        """Recording and step of each row; step −1 where a row is in none."""
        per = 1.0 if self.windows is None else self.windows.rate * self.windows.hop
        steps = np.floor(rows.place / per + 1e-6).astype(np.int64)
        count = np.array([*map(len, predicted), 0])
        outside = (rows.recording < 0) | (steps >= count[rows.recording])
        return list(zip(rows.recording.tolist(), np.where(outside, -1, steps).tolist()))

    def by_recording(self, predicted: Any) -> list[dict[str, Any]]:
        """Scores of each recording; parts of one that a gap has split count together."""
        out = []
        for name in dict.fromkeys(self.recordings.names):
            own = [k for k, other in enumerate(self.recordings.names) if other == name]
            gold, said = [self.y[k] for k in own], [predicted[k] for k in own]
            known = sum(label is not None for labels in gold for label in labels.tolist())
            out.append(
                {
                    "recording": name,
                    "steps": sum(map(len, gold)),
                    "token_accuracy": token_accuracy(gold, said) if known else None,
                    "segment_f1": segment_f1(gold, said) if known else None,
                    "edit_score": edit_score(gold, said) if known else None,
                }
            )
        return out


def recordings_text(rows: Sequence[dict[str, Any]]) -> str:
    """Scores of recordings as lines.

    >>> print(recordings_text([
    ...     {"recording": "ann", "steps": 9, "token_accuracy": 0.5, "segment_f1": 1.0, "edit_score": None}]))
    recording   steps  accuracy  F1@50    edit
    ann             9    0.5000  1.0000       —
    """
    wide = max(9, *(width(row["recording"]) for row in rows))
    lines = [f"{'recording':<{wide}}  {'steps':>6}  accuracy  F1@50    edit"]
    for row in rows:
        scores = ["—" if row[key] is None else f"{row[key]:.4f}" for key in _SCORES]
        lines.append(
            f"{pad(row['recording'], wide)}  {row['steps']:>6,}  {scores[0]:>8}  {scores[1]:>6}  {scores[2]:>6}"
        )
    return "\n".join(lines)


_SCORES = ("token_accuracy", "segment_f1", "edit_score")


def refuse_text_options(path: str, format: Format, **given: Any) -> None:
    """WrongVerb where options of text files are given for a model of tables."""
    told = [name for name, value in given.items() if value]
    if told or format not in (Format.auto, Format.table, Format.tracks):
        what = f"--{told[0].replace('_', '-')}" if told else f"--format {format}"
        raise WrongVerb(f"{path} was trained on a table, for which {what} has no meaning.")


def refuse_table_options(path: str, asked: Asked) -> None:
    """WrongVerb where options of tables are given for a model of text files."""
    if asked.given:
        raise WrongVerb(f"{asked.given[0]} is for models of tables, and {path} was not trained on one.")


def _free(name: str, taken: Sequence[str]) -> str:
    """The name, or the first of name2, name3, … that no column has."""
    number = 1
    while (found := name if number == 1 else f"{name}{number}") in taken:
        number += 1
    return found
