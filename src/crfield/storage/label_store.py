"""Labels that people gave, kept in one SQLite file: an answer is on the disk before anybody hears that it was taken.

Each answer is one transaction with ``synchronous = FULL``: when `LabelStore.answer` returns, neither a killed process
nor a lost current takes it back. Nothing is overwritten. An answer to a sequence has a version, and names the version
that it is about to follow; if another person was quicker it is refused with what is there now (`AnswerConflict`). All
versions stay.

The steps are kept beside the labels, so that the file can be exported without the data it was made for, and a digest
of these data, so that it is not mixed up with others. A store has one user at a time, who holds SQLite's lock.

    facts     what the store is of: format, digest of the data
    answers   (sequence, version) → person, time, labels as JSON (null: left open), steps as JSON, agreement
    scores    how good the model was after so many answers
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from crfield.errors import FormatError, InputError

_APPLICATION = 0x63726C62
_FORMAT = "1"
_TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE answers (
  sequence INTEGER NOT NULL, version INTEGER NOT NULL, person TEXT NOT NULL, at REAL NOT NULL,
  labels TEXT NOT NULL, steps TEXT NOT NULL, agreement REAL, PRIMARY KEY (sequence, version));
CREATE TABLE scores (number INTEGER PRIMARY KEY, answers INTEGER NOT NULL, at REAL NOT NULL, score REAL NOT NULL);
"""


@dataclass(frozen=True)
class Answer:
    """What somebody said of a sequence; None where a step was left open."""

    sequence: int
    version: int
    person: str
    at: float
    labels: list[Any]
    steps: list[list[str]]
    agreement: float | None = None  # share of its labels that the model had given


class AnswerConflict(Exception):
    """An answer to a version that is not the newest; ``there`` is the newest."""

    def __init__(self, there: Answer | None) -> None:
        super().__init__("another answer is there already")
        self.there = there


class LabelStore:
    """Answers of people in a file.

    >>> import tempfile, os
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with LabelStore(os.path.join(folder, "labels.sqlite"), digest="of the data") as store:
    ...         first = store.answer(3, 0, "ann", ["D", None], [["the"], ["dog"]])
    ...         try:
    ...             store.answer(3, 0, "bob", ["D", "N"], [["the"], ["dog"]])
    ...         except AnswerConflict as conflict:
    ...             conflict.there.person, conflict.there.labels, first.version
    ('ann', ['D', None], 1)
    """

    def __init__(self, path: str | os.PathLike[str], *, digest: str | None = None) -> None:
        """Open a store, made where there is none if the ``digest`` of its data is given."""
        self.path = os.fspath(path)
        new = not os.path.exists(self.path)
        if new and digest is None:
            raise InputError(f"there is no store of labels at {self.path}.")
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(self.path, timeout=1.0, check_same_thread=False, isolation_level=None)
        try:
            self._begin(new, digest)
        except sqlite3.DatabaseError as error:
            self._connection.close()
            if "locked" in str(error):
                raise InputError(
                    f"{self.path} is in use by another process; a store has one user at a time."
                ) from None
            raise FormatError(f"this is no store of labels: {error}.", file=self.path) from None
        except Exception:
            self._connection.close()
            raise

    def _begin(self, new: bool, digest: str | None) -> None:
        ask = self._connection.execute
        ask("PRAGMA locking_mode = EXCLUSIVE")
        ask("PRAGMA synchronous = FULL")
        ask("PRAGMA trusted_schema = OFF")
        ask("BEGIN EXCLUSIVE")
        empty = not ask("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if empty and digest is not None:  # new, or its first process died before this point
            for statement in _TABLES.split(";"):
                ask(statement)
            ask(f"PRAGMA application_id = {_APPLICATION}")
            ask("INSERT INTO facts VALUES ('format', ?), ('digest', ?)", (_FORMAT, digest))
        ask("COMMIT")
        if ask("PRAGMA application_id").fetchone()[0] != _APPLICATION:
            raise FormatError("this is no store of labels.", file=self.path)
        facts = dict(ask("SELECT name, value FROM facts").fetchall())
        if facts.get("format") != _FORMAT:
            words = f"the store has the format {facts.get('format')!r:.20}; this version of crfield reads {_FORMAT}."
            raise FormatError(words, file=self.path)
        if digest is not None and facts.get("digest") != digest:
            raise InputError(
                f"{self.path} has labels for other data than these. Name the data that it was made for, or another "
                "store."
            )

    def answer(
        self,
        sequence: int,
        version: int,
        person: str,
        labels: Sequence[Any],
        steps: Sequence[Sequence[str]],
        agreement: float | None = None,
    ) -> Answer:
        """Keep an answer that follows ``version`` (0: the first); AnswerConflict if that is not the newest."""
        made = Answer(
            sequence, version + 1, person, time.time(), list(labels), [list(row) for row in steps], agreement
        )
        with self._lock:
            ask = self._connection.execute
            ask("BEGIN IMMEDIATE")
            try:
                there = self._newest(sequence)
                if (0 if there is None else there.version) != version:
                    raise AnswerConflict(there)
                row = (made.sequence, made.version, made.person, made.at, json.dumps(made.labels))
                ask("INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, json.dumps(made.steps), agreement))
                ask("COMMIT")
            except BaseException:
                ask("ROLLBACK")
                raise
        return made

    def _newest(self, sequence: int) -> Answer | None:
        row = self._connection.execute(
            "SELECT * FROM answers WHERE sequence = ? ORDER BY version DESC LIMIT 1", (sequence,)
        ).fetchone()
        return None if row is None else _read(row, self.path)

    def newest(self, sequence: int) -> Answer | None:
        """The answer of a sequence that holds; None where there is none."""
        with self._lock:
            return self._newest(sequence)

    def answers(self) -> list[Answer]:
        """The answers that hold, one a sequence, in the order of time."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT * FROM answers AS a WHERE version = "
                "(SELECT max(version) FROM answers WHERE sequence = a.sequence) ORDER BY at, sequence"
            ).fetchall()
        return [_read(row, self.path) for row in rows]

    def note_score(self, answers: int, score: float) -> None:
        """Keep how good the model was after so many answers."""
        with self._lock:
            self._connection.execute(
                "INSERT INTO scores (answers, at, score) VALUES (?, ?, ?)", (answers, time.time(), score)
            )

    def scores(self) -> list[tuple[int, float]]:
        """Number of answers and score, as they came."""
        with self._lock:
            rows = self._connection.execute("SELECT answers, score FROM scores ORDER BY number").fetchall()
        return [(int(count), float(score)) for count, score in rows]

    def close(self) -> None:
        """Give the file back."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _read(row: tuple[Any, ...], path: str) -> Answer:
    try:
        labels, steps = json.loads(row[4]), json.loads(row[5])
        good = isinstance(labels, list) and isinstance(steps, list) and len(labels) == len(steps)
        if not good or not all(isinstance(own, list) and all(isinstance(t, str) for t in own) for own in steps):
            raise ValueError
        return Answer(int(row[0]), int(row[1]), str(row[2]), float(row[3]), labels, steps, row[6])
    except (TypeError, ValueError):
        raise FormatError("an answer of the store is damaged.", file=path) from None


def columns_text(answers: Sequence[Answer], *, mark: str = "_") -> str:
    r"""Answers as columns (CoNLL): a line a step, its columns, then its label or the mark where it was left open.

    Blanks within a column would end it, so they become no-break spaces.

    >>> columns_text([Answer(0, 1, "ann", 0.0, ["D", None], [["the", "DT"], ["big dog", "NN"]])])
    'the\tDT\tD\nbig\xa0dog\tNN\t_\n\n'
    """
    lines = []
    for answer in answers:
        for row, label in zip(answer.steps, answer.labels):
            cells = [*row, mark if label is None else str(label)]
            lines.append("\t".join("\u00a0".join(cell.split()) or "\u00a0" for cell in cells))
        lines.append("")
    return "".join(f"{line}\n" for line in lines)
