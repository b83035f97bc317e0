"""Labelled data from the files named on the command line.

Three formats: columns (CoNLL, CRF++: a token a line), CoNLL-U and CRFsuite's attributes. Options, or the model, say
which; otherwise the first lines are looked at. Several files are read as one text with a blank line between, so that
one check of the columns covers all of them, and errors still name the file and the line within it.

The numbers of a template's columns are those of the file, wherever the label column stands; a template that reads
the label column is refused.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import typer

import crfield
from crfield.data.attributes import AttributeSequences
from crfield.data.texts.conll import parse_columns
from crfield.data.texts.conllu import ColumnSpec, looks_like_conllu, parse_conllu
from crfield.data.texts.crfsuite import parse_crfsuite
from crfield.data.tokens import TokenColumns
from crfield.errors import FeatureError, FormatError, InputError, TemplateError
from crfield.features.encoder import Encoder
from crfield.features.templates.encoder import TemplateEncoder
from crfield.features.templates.template import Template
from crfield.features.text.transformer import TextFeatures
from crfield.storage.exchange import read_template
from crfield.storage.files import name_of, read_bytes

_LOOKED_AT = 1 << 16  # bytes from which the format is guessed
_WINDOW = range(-2, 3)
_MARK = b"\xef\xbb\xbf"


class Format(StrEnum):
    """What a data file holds."""

    auto = "auto"
    columns = "columns"
    crfsuite = "crfsuite"
    conllu = "conllu"
    table = "table"
    tracks = "tracks"


@dataclass(frozen=True, eq=False)
class Examples:
    """Sequences, their labels, and the weights that a CRFsuite file may give them."""

    X: TokenColumns | AttributeSequences
    y: list[np.ndarray]
    weights: np.ndarray | None = None

    @property
    def n_steps(self) -> int:
        """Steps of all sequences."""
        return self.X.topology.n_nodes


class Text:
    """The text of one or more files, and the file and line that each of its lines comes from."""

    def __init__(self, sources: Sequence[str]) -> None:
        if list(sources).count("-") > 1:
            raise InputError("standard input ('-') can be read only once.")
        parts = [read_bytes(source) for source in sources]
        parts[1:] = [part.removeprefix(_MARK) for part in parts[1:]]  # the parser drops that of the first
        self.names = [name_of(source) for source in sources]
        self.starts = [1]  # line of the joined text at which each file begins
        for part in parts[:-1]:
            self.starts.append(self.starts[-1] + part.count(b"\n") + 2)
        self.data = b"\n\n".join(parts)

    def place(self, line: int) -> tuple[str, int]:
        """File and line of a line of the whole."""
        at = bisect_right(self.starts, line) - 1
        return self.names[at], line - self.starts[at] + 1

    def first_line(self) -> tuple[str, int]:
        """Where the first line that is not blank stands."""
        blank = len(self.data) - len(self.data.lstrip(b" \t\r\n"))
        return self.place(1 + self.data.count(b"\n", 0, blank))


@contextmanager
def placed(place: Callable[[int], tuple[str, int]]) -> Iterator[None]:
    r"""Give the errors of a parsed text the file and line that ``place`` says.

    >>> with placed(lambda line: ("dev.txt", line + 40)):
    ...     parse_columns(b"He PRP\nruns\n")
    Traceback (most recent call last):
    crfield.errors.FormatError: dev.txt, line 42: expected 2 columns as in the lines before, got 1. ...
    """
    try:
        yield
    except FormatError as error:
        if error.line is None:
            raise
        file, line = place(error.line)
        raise FormatError(str(error).removeprefix(f"line {error.line}: "), file=file, line=line) from None


def guess_format(data: bytes) -> Format:
    r"""What a text seems to be, from its first lines.

    CRFsuite's fields are separated by tabs, most of them hold ``=`` or ``:``, and their number changes from line
    to line; a column file has as many in every line, or one slip.

    >>> guess_format(b"He PRP B-NP\nruns VBZ B-VP\n"), guess_format(b"B-NP\tw=He\tpos=PRP\nB-VP\tw=runs\n")
    (<Format.columns: 'columns'>, <Format.crfsuite: 'crfsuite'>)
    """
    head = data[:_LOOKED_AT]
    lines = (head if len(data) <= _LOOKED_AT else head[: head.rfind(b"\n") + 1]).splitlines()
    if any(line.startswith(b"@weight:") for line in lines):
        return Format.crfsuite
    rows = [line.split(b"\t") for line in lines if b"\t" in line]
    if not rows:
        return Format.columns
    fields = [field for row in rows for field in row[1:]]
    valued = sum(b"=" in field or b":" in field for field in fields)
    if looks_like_conllu(data):
        return Format.conllu
    ragged = len({len(row) for row in rows}) > 2
    return Format.crfsuite if ragged or 2 * valued > len(fields) else Format.columns


def load_template(path: str) -> Template:
    """The template of a file; errors begin with its name."""
    try:
        return Template(read_template(path))
    except TemplateError as error:
        raise TemplateError(f"{name_of(path)}: {error}") from None


@dataclass(frozen=True)
class WordColumns:
    """The columns that text features read; they are checked as those of a `Template` are.

    >>> WordColumns((0, 2)).check_width(2)
    Traceback (most recent call last):
    crfield.errors.TemplateError: the text features read column 2, but there are 2 columns (0 … 1). ...
    """

    columns: tuple[int, ...]

    def check_width(self, width: int) -> None:
        """TemplateError unless tokens of ``width`` columns have all that is read."""
        if max(self.columns) >= width:
            have = "there is 1 column" if width == 1 else f"there are {width} columns"
            raise TemplateError(
                f"the text features read column {max(self.columns)}, but {have} (0 … {width - 1}). Is the file like "
                "those of training?"
            )


@dataclass(frozen=True)
class Reads:
    """How a model reads text files: token columns, by a template or by text features, or features by name."""

    columns: Template | WordColumns | None  # None: features by name, as CRFsuite's files have them
    source: Mapping[str, str] = field(default_factory=dict)  # how the command line read the files of training
    encoder: Encoder | None = None  # what a trained model knows of its data

    @classmethod
    def by(cls, options: Mapping[str, Any], source: Mapping[str, str], encoder: Encoder | None = None) -> Reads:
        """How a model of these parameters, ``template`` or ``features``, reads."""
        words, template = options.get("features"), options.get("template")
        if isinstance(words, TextFeatures):
            return cls(WordColumns(tuple(words.column_numbers.values())), source, encoder)
        return cls(Template(template) if isinstance(template, str) else template, source, encoder)

    @property
    def format(self) -> Format:
        """The format of its files; CoNLL-U is columns too."""
        return Format.crfsuite if self.columns is None else Format.columns

    @property
    def words(self) -> str:
        """The same for people."""
        if self.columns is None:
            return "named features, without a template"
        return "words by text features" if isinstance(self.columns, WordColumns) else "token columns by a template"


def default_template(columns: Sequence[int]) -> Template:
    """All the columns in a window of two steps either way, and transitions.

    >>> print(default_template([1]).text)
    U1[-2]:%x[-2,1]
    U1[-1]:%x[-1,1]
    U1[0]:%x[0,1]
    U1[1]:%x[1,1]
    U1[2]:%x[2,1]
    B
    """
    lines = [f"U{col}[{row}]:%x[{row},{col}]" for col in columns for row in _WINDOW]
    return Template("\n".join([*lines, "B"]))


def read_tokens(text: Text, *, label_column: int) -> tuple[TokenColumns, int]:
    """The tokens of a column text, labels included, and the number of the column that holds these."""
    with placed(text.place):
        tokens = parse_columns(text.data)
    _refuse_empty(len(tokens), text)
    width = tokens.width
    if not -width <= label_column < width:
        file, line = text.first_line()
        raise FormatError(
            f"--label-column {label_column} was asked of lines with {width} columns (0 … {width - 1}, or −1 for "
            "the last).",
            file=file,
            line=line,
        )
    return tokens, label_column % width


def check_template(
    template: Template | WordColumns | None, tokens: Any, label: int | None, place: tuple[str, int]
) -> None:
    """An error unless the tokens have every column that the template reads, and none of them is the label's."""
    if template is None or not isinstance(tokens, TokenColumns):
        return
    file, line = place
    where = f"{file}, line {line}"
    try:
        template.check_width(tokens.width)
    except TemplateError as error:
        raise TemplateError(f"{where}: {error}") from None
    if label in template.columns:
        who = "the template reads" if isinstance(template, Template) else "the text features read"
        raise TemplateError(
            f"{where}: {who} column {label}, which holds the labels (the lines have {tokens.width} columns). Does "
            "the file lack its labels? Otherwise change the template, or name another column with --label-column."
        )


def read_attributes(text: Text) -> Examples:
    """Labelled sequences of a CRFsuite text."""
    with placed(text.place):
        X, y, weights = parse_crfsuite(text.data)
    _refuse_empty(len(X), text)
    return Examples(X, y, None if (weights == 1.0).all() else weights)


def format_for(reads: Reads, asked: Format, name: str = "", head: bytes = b"") -> Format:
    """The format in which a model reads a file of this name and beginning; an error if another was asked for."""
    if reads.format is Format.columns and asked in (Format.auto, Format.conllu):
        kept = reads.source.get("format") == Format.conllu
        if asked is Format.conllu or named_conllu(name) or (kept and looks_like_conllu(head)):
            return Format.conllu
    if asked not in (Format.auto, reads.format):
        raise InputError(f"the model was trained on {reads.words}, so --format {asked} cannot be used with it.")
    return reads.format


def read_for(
    reads: Reads,
    sources: Sequence[str],
    *,
    asked: Format,
    label_column: int,
    columns: str | None = None,
    label: str | None = None,
) -> Examples:
    """Labelled data for a trained model."""
    text = Text(sources)
    format = format_for(reads, asked, text.names[0], text.data)
    if format is Format.conllu:
        examples = read_words(text, *names_for(reads, columns, label))
        check_template(reads.columns, examples.X, None, text.first_line())
        return examples
    with of_its_form(reads, text.data, text.place) as check:
        if reads.columns is None:
            read = read_attributes(text)
        else:
            tokens, column = read_tokens(text, label_column=label_column)
            check_template(reads.columns, tokens, column, text.first_line())
            read = Examples(tokens, tokens.column(column))
        check(read.X)
    return read


def read_unlabelled(reads: Reads, sources: Sequence[str], *, asked: Format, columns: str | None) -> Any:
    """Sequences for a trained model; labels in the files, if any, are not looked at."""
    text = Text(sources)
    format = format_for(reads, asked, text.names[0], text.data)
    if format is Format.conllu:
        X: Any = read_words(text, columns or reads.source.get("columns"), None).X
        check_template(reads.columns, X, None, text.first_line())
        return X
    with of_its_form(reads, text.data, text.place) as check:
        with placed(text.place):
            X = parse_crfsuite(text.data)[0] if format is Format.crfsuite else parse_columns(text.data)
        _refuse_empty(len(X), text, "sequences")
        check_template(reads.columns, X, None, text.first_line())
        check(X)
    return X


@contextmanager
def of_its_form(
    reads: Reads, data: bytes, place: Callable[[int], tuple[str, int]]
) -> Iterator[Callable[[TokenColumns | AttributeSequences], None]]:
    """Refuse a text that looks like the other format, if it cannot be read in the model's or has nothing it knows.

    What was read is handed to the function that the block gets.
    """
    try:
        yield lambda X: _refuse_foreign(reads, data, place, X)
    except (FormatError, TemplateError):
        _refuse_foreign(reads, data, place, None)
        raise


def _refuse_foreign(reads: Reads, data: bytes, place: Callable[[int], tuple[str, int]], X: Any) -> None:
    encoder = reads.encoder
    if encoder is None:
        return  # nothing was learnt yet
    seems = guess_format(data)
    line = next((line for line in data.removeprefix(_MARK).splitlines() if line.strip()), b"")
    if seems is reads.format or not (b" " in line or b"\t" in line):
        return
    if X is not None and (not len(X) or _knows(encoder, X)):
        return
    form = f"attributes such as {_first(encoder)}" if reads.columns is None else reads.words
    other = {
        Format.columns: "columns",
        Format.conllu: "CoNLL-U",
        Format.crfsuite: "attributes (label<TAB>feature<TAB>…)",
    }
    file, number = place(1 + data[: data.find(line)].count(b"\n"))
    shown = line[:60].decode("utf-8", "backslashreplace")
    raise FormatError(
        f"the model was trained on {form}, and this looks like {other[seems]}: {shown!r}. The model knows nothing "
        "in it. Name the file, or the model, that was meant.",
        file=file,
        line=number,
    )


def _knows(encoder: Encoder, X: TokenColumns | AttributeSequences) -> bool:
    """Whether anything in X is known, or at least could be new words like others before."""
    if isinstance(X, TokenColumns) and isinstance(encoder, TemplateEncoder):
        return bool(encoder.known_rows(X).any())
    try:
        with crfield.strict():
            encoder.encode(X)
    except FeatureError:
        return False
    return isinstance(X, TokenColumns) or len(X.indices) > 0


def _first(encoder: Encoder) -> str:
    return repr(encoder.node_name(0)) if encoder.widths.sparse else "none"


def names_for(reads: Reads, columns: str | None, label: str | None) -> tuple[str, str]:
    """The columns and the label of CoNLL-U for a model: those that were asked for, or those of its training."""
    columns, label = columns or reads.source.get("columns", "form"), label or reads.source.get("label")
    if label is None:
        raise InputError(
            "the model was not trained on CoNLL-U and cannot tell which column its labels are: name it, --label "
            "upos, and what it reads, --columns form."
        )
    check_names(columns, label)
    return columns, label


def read_words(text: Text, columns: str | None, label: str | None) -> Examples:
    """The words of a CoNLL-U text, with labels if one is named."""
    with placed(text.place):
        X, y, _ = parse_conllu(text.data, columns=check_names(columns, None), label=label)
    _refuse_empty(len(X), text)
    return Examples(X, [] if y is None else y)


def check_names(columns: str | None, label: str | None) -> list[str]:
    """The columns of CoNLL-U that were asked for, as a list; a wrong command line where there are none such."""
    listed = [name.strip() for name in (columns or "form").split(",") if name.strip()]
    try:
        parts = [part for name in listed for part in ColumnSpec(name).parts]
        wanted = [] if label is None else ColumnSpec(label).parts
    except InputError as error:
        raise typer.BadParameter(str(error)) from None
    if not listed or set(parts) & set(wanted):
        raise typer.BadParameter(f"--columns {columns} must name columns, and none that --label {label} holds.")
    return listed


def named_conllu(name: str) -> bool:
    """Whether a file is called as CoNLL-U files are."""
    return name.lower().removesuffix(".gz").endswith(".conllu")


def _refuse_empty(count: int, text: Text, what: str = "labelled sequences") -> None:
    if not count:
        raise InputError(f"{', '.join(text.names)}: expected {what}, found nothing but blank lines.")
