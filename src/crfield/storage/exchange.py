"""Files of other tools: CoNLL and CRF++ columns, CRFsuite attributes, CRF++ templates; and graphs as JSON lines.

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
from crfield.data.graph import Graph
from crfield.data.graph_json import format_graphs, parse_graphs
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


def read_graphs(source: Source) -> tuple[list[Graph], list[Any] | None]:
    r"""Graphs, and their labels or None, of a file with one JSON object a line (`crfield.data.graph_json`).

    >>> import io
    >>> read_graphs(io.StringIO('{"nodes": 2, "edges": {"near": [[0, 1]]}}'))
    ([Graph(2 nodes, 1 edges: near 1)], None)
    """
    return parse_graphs(read_text(source), file=name_of(source))


def write_graphs(target: Source, graphs: Iterable[Graph], labels: Sequence[Any] | None = None) -> None:
    r"""Write graphs, with labels if given, one JSON object a line.

    >>> import io
    >>> stream = io.StringIO()
    >>> write_graphs(stream, [Graph(2, {"near": [(0, 1)]})], [["a", "b"]])
    >>> stream.getvalue()
    '{"nodes": 2, "edges": {"near": {"pairs": [[0, 1]]}}, "labels": ["a", "b"]}\n'
    """
    write_text(target, format_graphs(graphs, labels))
