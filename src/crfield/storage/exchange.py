"""Files of other tools: CoNLL and CRF++ columns, CRFsuite attributes, CRF++ templates.

Every function takes a path, an open stream, or ``-`` for the standard streams, plain or gzip. What is read is
parsed by `data`; errors name the file and the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from crfield.data.attributes import AttributeSequences
from crfield.data.conll import format_columns, parse_columns
from crfield.data.crfsuite_text import format_crfsuite, parse_crfsuite
from crfield.data.tokens import TokenColumns
from crfield.storage.files import Source, name_of, read_bytes, read_text, write_text


def read_columns(source: Source, *, comment: str | None = None) -> TokenColumns:
    r"""The tokens of a column file; lines that begin with ``comment`` are left out.

    >>> import io
    >>> read_columns(io.StringIO("He PRP B\nruns VBZ O\n")).split_column(-1)[1][0].tolist()
    ['B', 'O']
    """
    return parse_columns(read_bytes(source), comment=comment, file=name_of(source))


def read_crfsuite(source: Source) -> tuple[AttributeSequences, list[np.ndarray], np.ndarray]:
    r"""Attributes, one object array of labels per sequence, and sequence weights of a CRFsuite file.

    >>> import io
    >>> X, y, weights = read_crfsuite(io.StringIO("N\tw=a\nV\tw=b\n"))
    >>> X[0], y[0].tolist(), weights.tolist()
    ([['w=a'], ['w=b']], ['N', 'V'], [1.0])
    """
    return parse_crfsuite(read_bytes(source), file=name_of(source))


def read_template(source: Source) -> str:
    r"""The text of a template file.

    >>> import io
    >>> read_template(io.StringIO("U00:%x[0,0]\n"))
    'U00:%x[0,0]\n'
    """
    return read_text(source)


def write_columns(target: Source, sequences: Iterable[Iterable[Sequence[str]]], *, separator: str = "\t") -> None:
    r"""Write sequences of token rows (or `TokenColumns`) as a column file.

    >>> import io
    >>> stream = io.StringIO()
    >>> write_columns(stream, [[("He", "PRP")]], separator=" ")
    >>> stream.getvalue()
    'He PRP\n'
    """
    write_text(target, format_columns(sequences, separator=separator))


def write_crfsuite(
    target: Source,
    X: Iterable[Iterable[Any]],
    y: Iterable[Sequence[str]],
    weights: Iterable[float] | None = None,
) -> None:
    r"""Write sequences of attribute dicts or name lists (or `AttributeSequences`) as a CRFsuite file.

    >>> import io
    >>> stream = io.StringIO()
    >>> write_crfsuite(stream, [[["w=a"]]], [["N"]])
    >>> stream.getvalue()
    'N\tw=a\n'
    """
    write_text(target, format_crfsuite(X, y, weights=weights))
