r"""``crfield tag``: unlabelled (or labelled) data in, the same with predicted labels out.

Columns come back as they are with the label behind the last column, in the manner of CRF++, so a file with gold
labels becomes one that ``crfield evaluate --predicted`` and conlleval read. Of CRFsuite's lines only the label they
began with is kept, ``gold<TAB>predicted``, as ``crfsuite tag -r`` does. With ``--marginals`` the probability of the
predicted label at its step follows in a column of its own.

Data passes through in blocks of whole sequences, so memory does not grow with the input.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import IO, Annotated, Any

import numpy as np
import typer

from crfield.cli.reading import Format, check_template, format_for, load_tagger, placed, template_of
from crfield.data.conll import parse_columns
from crfield.data.crfsuite_text import parse_crfsuite
from crfield.errors import FormatError
from crfield.storage.blocks import Block, read_blocks, writing
from crfield.storage.files import name_of

_MARK = b"\xef\xbb\xbf"


def tag(
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="INPUT", help="Files, plain or gzip; standard input if there is none."),
    ] = None,
    *,
    model: Annotated[str, typer.Option("--model", "-m", metavar="FILE", help="The model file.")],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="File to write; - for standard output.")
    ] = "-",
    marginals: Annotated[
        bool, typer.Option("--marginals", help="Add the probability of each predicted label.")
    ] = False,
    format: Annotated[
        Format, typer.Option(metavar="FORMAT", help=f"What the files hold: {', '.join(Format)} (the model knows).")
    ] = Format.auto,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads.", show_default="all processors", metavar="N")
    ] = None,
) -> None:
    """Label data with a model.

    Each line of a column file is written with the predicted label behind its last column; a gold label stays.
    """
    crf = load_tagger(model, threads=threads)
    kind = format_for(crf, format)
    with writing(output) as stream:
        for number, source in enumerate(data or ["-"]):
            if number:
                stream.write(b"\n")
            if kind is Format.columns:
                _tag_columns(crf, source, stream, marginals=marginals)
            else:
                _tag_attributes(crf, source, stream, marginals=marginals)


def _tag_columns(crf: Any, source: str, stream: IO[bytes], *, marginals: bool) -> None:
    template, name, width, separator = template_of(crf), name_of(source), 0, b" "
    for block in read_blocks(source):
        with placed(lambda line, first=block.line: (name, first + line - 1)):  # type: ignore[misc]
            # The mark of the file is gone already; the parser must not take one off the first word of a block.
            tokens = parse_columns(_MARK + block.data)
        if not len(tokens):
            stream.write(block.data)
            continue
        if not width:
            width, separator = tokens.width, b"\t" if b"\t" in block.data else b" "
            check_template(template, tokens, None, (name, _first_line(block)))
        elif tokens.width != width:
            message = f"expected {width} columns as in the lines before, got {tokens.width}. Is a field empty?"
            raise FormatError(message, file=name, line=_first_line(block))
        answers = chain.from_iterable(_answers(crf, tokens, separator, marginals=marginals))
        stream.write(_appended(block.data, answers))
        stream.flush()


def _appended(data: bytes, answers: Iterator[bytes]) -> bytes:
    """The lines of the text, each that is not blank with the next answer at its end."""
    lines = data.split(b"\n")
    for k, line in enumerate(lines):
        body = line.removesuffix(b"\r")
        if body.strip(b" \t"):
            lines[k] = body.rstrip(b" \t") + next(answers) + line[len(body) :]
    if lines[-1]:
        lines.append(b"")
    return b"\n".join(lines)


def _first_line(block: Block) -> int:
    blank = len(block.data) - len(block.data.lstrip(b" \t\r\n"))
    return block.line + block.data.count(b"\n", 0, blank)


def _tag_attributes(crf: Any, source: str, stream: IO[bytes], *, marginals: bool) -> None:
    name, begun = name_of(source), False
    for block in read_blocks(source):
        with placed(lambda line, first=block.line: (name, first + line - 1)):  # type: ignore[misc]
            X, gold, _ = parse_crfsuite(_MARK + block.data)
        for labels, answers in zip(gold, _answers(crf, X, b"\t", marginals=marginals) if len(X) else ()):
            lines = [label.encode() + answer for label, answer in zip(labels, answers)]
            stream.write((b"\n" if begun else b"") + b"\n".join(lines) + b"\n")
            begun = True
        stream.flush()


def _answers(crf: Any, X: Any, separator: bytes, *, marginals: bool) -> Iterator[list[bytes]]:
    """What is added to each line, sequence by sequence."""
    predicted = crf.predict(X)
    added = {label: separator + str(label).encode() for label in crf.classes_.tolist()}
    if not marginals:
        for labels in predicted:
            yield [added[label] for label in labels.tolist()]
        return
    code = {label: k for k, label in enumerate(crf.classes_.tolist())}
    for labels, table in zip(predicted, crf.predict_proba(X)):
        names = labels.tolist()
        chances = table[np.arange(len(names)), [code[label] for label in names]].tolist()
        yield [added[label] + separator + b"%.6f" % chance for label, chance in zip(names, chances)]
