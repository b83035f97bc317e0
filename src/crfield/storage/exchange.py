"""Files of other tools: CoNLL and CRF++ columns, CoNLL-U, CRFsuite attributes, CRF++ templates; graphs as JSON lines;
texts with marked spans of annotation tools.

Every function takes a path, an open stream, or ``-`` for the standard streams, plain or gzip. What is read is
parsed by `data`; errors name the file and the line.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from crfield.core.checks import one_of
from crfield.data.attributes import AttributeSequences
from crfield.data.graphs.graph import Graph
from crfield.data.graphs.json import format_graphs, parse_graphs
from crfield.data.texts.annotations import (
    FORMATS,
    format_brat,
    format_doccano,
    format_label_studio,
    parse_brat,
    parse_doccano,
    parse_label_studio,
)
from crfield.data.texts.conll import format_columns, parse_columns
from crfield.data.texts.conllu import Conllu, parse_conllu
from crfield.data.texts.crfsuite import format_crfsuite, parse_crfsuite
from crfield.data.texts.documents import Document
from crfield.data.tokens import TokenColumns
from crfield.errors import FormatError, TemplateError
from crfield.storage.files import Source, name_of, read_bytes, read_text, write_text


def read_columns(source: Source, *, comment: str | None = None) -> TokenColumns:
    r"""The tokens of a column file; lines that begin with ``comment`` are left out.

    >>> import io
    >>> read_columns(io.StringIO("He PRP B\nruns VBZ O\n")).split_column(-1)[1][0].tolist()
    ['B', 'O']
    """
    return parse_columns(read_bytes(source), comment=comment, file=name_of(source))


def read_conllu(
    source: Source,
    *,
    columns: Sequence[str] = ("form",),
    label: str | None = None,
    surface: bool = False,
    empty_nodes: bool = False,
) -> Conllu:
    r"""Tokens X with the chosen columns, labels y (None without ``label``) and comments of a CoNLL-U file.

    Columns are named as in Universal Dependencies: ``form``, ``lemma``, ``upos``, ``xpos``, ``feats``, ``deprel``, …;
    ``upos+feats`` joins two, ``feats.Number`` is one entry. Steps are the words: lines of several (``1-2``) and empty
    nodes (``8.1``) are left out, unless ``surface`` takes those tokens in place of their words (whose values are
    joined by ``+``), or ``empty_nodes`` keeps the nodes.

    >>> import io
    >>> lines = ["# sent_id = a", "1\tShe\tshe\tPRON\tPRP\t_\t2\tnsubj\t_\t_", "2-3\tcan't" + "\t_" * 8]
    >>> lines += ["2\tca\tcan\tAUX\tMD\t_\t0\troot\t_\t_", "3\tn't\tnot\tPART\tRB\t_\t2\tadvmod\t_\t_"]
    >>> X, y, metadata = read_conllu(io.StringIO("\n".join(lines)), columns=("form", "xpos"), label="upos")
    >>> X[0], y[0].tolist(), metadata
    ([('She', 'PRP'), ('ca', 'MD'), ("n't", 'RB')], ['PRON', 'AUX', 'PART'], [{'sent_id': 'a'}])
    >>> read_conllu(io.StringIO("\n".join(lines)), label="upos", surface=True).y[0].tolist()
    ['PRON', 'AUX+PART']
    """
    data, file = read_bytes(source), name_of(source)
    return parse_conllu(data, columns=columns, label=label, surface=surface, empty_nodes=empty_nodes, file=file)


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


def template_text(given: Any) -> Any:
    r"""The text of a template that is given as text or as the path of its file; any other value as it is.

    A `pathlib.Path` is a path. A string is the text if it has more than one line or a macro, or is ``B``; otherwise
    it is the path of a file.

    >>> template_text("U00:%x[0,0]"), template_text("B")
    ('U00:%x[0,0]', 'B')
    >>> template_text("words.tmpl")
    Traceback (most recent call last):
    crfield.errors.TemplateError: template='words.tmpl' is neither the text of a template, whose lines ...
    """
    if isinstance(given, os.PathLike):
        return read_text(given)
    if not isinstance(given, str) or not given.strip() or "\n" in given or "%" in given or given.strip() == "B":
        return given
    try:
        return read_text(given)
    except (OSError, ValueError) as error:
        if given.lstrip()[0] in "UB#" and not isinstance(error, FormatError):
            return given  # a feature that is always there, or a comment
        if isinstance(error, FormatError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise TemplateError(
            f"template={given!r:.80} is neither the text of a template, whose lines begin with U, B or #, nor a file "
            f"that can be read: {reason}. Give the text, the path of its file, or crfield.read_template(path)."
        ) from None


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
    r"""Graphs, and their labels or None, of a file with one JSON object a line (`crfield.data.graphs.json`).

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


def read_documents(source: Source, *, format: str | None = None) -> list[Document]:
    r"""Texts with marked spans, as annotation tools export them.

    ``format`` is "doccano" (JSON lines), "label_studio" (JSON) or "brat" (the ``.txt`` of a text, its ``.ann`` beside
    it, or a folder of such pairs); guessed from the name if None. `crfield.tagged` makes tokens and tags of them.

    >>> import io
    >>> read_documents(io.StringIO('{"text": "Ana vive", "label": [[0, 3, "PER"]]}'), format="doccano")[0].words
    ['Ana']
    """
    kind = _document_format(source, format)
    if kind == "doccano":
        return parse_doccano(read_text(source), file=name_of(source))
    if kind == "label_studio":
        return parse_label_studio(read_text(source), file=name_of(source))
    if not isinstance(source, str | os.PathLike):
        raise FormatError("BRAT keeps a text and its annotation in two files: give the path of the text or folder.")
    path = os.fspath(source)
    texts = [path]
    if os.path.isdir(path):
        texts = [os.path.join(path, name) for name in sorted(os.listdir(path)) if name.endswith(".txt")]
    out = []
    for text in texts:
        stem = os.path.splitext(text)[0]
        notes = read_text(f"{stem}.ann") if os.path.exists(f"{stem}.ann") else ""
        out.append(parse_brat(read_text(f"{stem}.txt"), notes, name=os.path.basename(stem), file=f"{stem}.ann"))
    return out


def write_documents(target: Source, documents: Iterable[Document], *, format: str | None = None) -> None:
    r"""Write texts with marked spans for an annotation tool; see `read_documents`. "brat" writes into a folder.

    >>> import io
    >>> stream = io.StringIO()
    >>> write_documents(stream, [Document("Ana vive")], format="doccano")
    >>> stream.getvalue()
    '{"text": "Ana vive", "label": []}\n'
    """
    kind = _document_format(target, format)
    if kind == "doccano":
        write_text(target, format_doccano(documents))
    elif kind == "label_studio":
        write_text(target, format_label_studio(documents))
    else:
        if not isinstance(target, str | os.PathLike):
            raise FormatError("BRAT keeps a text and its annotation in two files: give the path of a folder.")
        os.makedirs(target, exist_ok=True)
        for number, document in enumerate(documents):
            name = document.name or f"{number:05d}"
            if os.path.basename(name) != name or name in ("", ".", ".."):
                raise FormatError(f"document {number} is called {name!r}, which is no name of a file.")
            stem = os.path.join(os.fspath(target), name)
            write_text(f"{stem}.txt", document.text)
            write_text(f"{stem}.ann", format_brat(document))


def _document_format(place: Source, format: str | None) -> str:
    if format is not None:
        one_of(*FORMATS)("format", format)
        return format
    name = name_of(place)
    if name.endswith((".jsonl", ".ndjson", ".jsonl.gz")):
        return "doccano"
    if name.endswith((".json", ".json.gz")):
        return "label_studio"
    if name.endswith((".txt", ".ann")) or os.path.isdir(name):
        return "brat"
    raise FormatError(f"the name does not tell the format: give format=, one of {', '.join(FORMATS)}.", file=name)
