r"""Column files: one token a line, its columns separated by blanks, sequences separated by blank lines.

This is what CoNLL's shared tasks, CRF++ and Wapiti read. Runs of spaces and tabs separate fields, a line of
white space ends a sequence, ``\r\n`` and a byte order mark are accepted, and there are no comments unless
asked for, because ``#`` is a word. ``-DOCSTART-`` is data as any other. Every line has the same number of
columns. Bytes become codes without a Python string between; a million fields take about 40 ms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from crfield.core.topology import Chains
from crfield.data.alphabet import Alphabet
from crfield.data.tokens import TokenColumns
from crfield.errors import FormatError
from crfield.kernels import columns as kernel

_UNWRITABLE = re.compile(r"[ \t\r\n\ud800-\udfff]")


def parse_columns(data: bytes, *, comment: str | None = None, file: str | None = None) -> TokenColumns:
    r"""The tokens of a column file's bytes; lines that begin with ``comment`` are left out.

    >>> parse_columns(b"He PRP\nruns  VBZ\n\nStop VB\n")[0]
    [('He', 'PRP'), ('runs', 'VBZ')]
    >>> parse_columns(b"He PRP\nruns\n", file="train.txt")
    Traceback (most recent call last):
    crfield.errors.FormatError: train.txt, line 2: expected 2 columns as in the lines before, got 1. ...
    """
    interner, offsets, codes = kernel.parse_columns(data, comment=comment, file=file)
    return TokenColumns(codes, Chains(offsets), Alphabet(interner=interner))


def format_columns(sequences: Iterable[Iterable[Sequence[str]]], *, separator: str = "\t") -> str:
    r"""The column file's text of sequences of token rows; what `parse_columns` reads back.

    >>> format_columns([[("He", "PRP")], [("Stop", "VB")]], separator=" ")
    'He PRP\n\nStop VB\n'
    """
    if not separator or separator.strip(" \t"):
        raise FormatError(f"the separator must be spaces or tabs, got {separator!r}.")
    parts: list[str] = []
    width, line = 0, 1
    for s, sequence in enumerate(sequences):
        rows = [_row(row, line + t, width) for t, row in enumerate(sequence)]
        if not rows:
            raise FormatError(f"sequence {s} is empty, which a column file cannot say. Leave it out.")
        width = width or len(rows[0])
        if any(len(row) != width for row in rows):
            raise FormatError(f"sequence {s} has rows of other widths than {width}.", line=line)
        parts.append("".join(separator.join(row) + "\n" for row in rows))
        line += len(rows) + 1
    text = "\n".join(parts)
    # A reader takes one byte order mark away: a first word that begins with one needs another before it.
    return "\ufeff" + text if text.startswith("\ufeff") else text


def _row(row: Any, line: int, width: int) -> Sequence[str]:
    if isinstance(row, str) or not len(row):
        raise FormatError(f"a token must be a row of one or more strings, got {row!r}.", line=line)
    for field in row:
        if not isinstance(field, str) or not field or _UNWRITABLE.search(field):
            raise FormatError(
                f"the field {field!r} cannot be written: fields are strings of one or more characters "
                "without blanks, line ends or lone surrogates.",
                line=line,
            )
    return row
