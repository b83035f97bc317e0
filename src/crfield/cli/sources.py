"""How files become sequences: options that the verbs share, and what a model remembers of them.

Column files and CoNLL-U go through a CRF++ template or, with ``--features text``, through `TextFeatures`; CRFsuite's
files bring their features along. Of CoNLL-U the chosen columns are read as if they were the file's only ones, so that
the template's column 0 is the first of ``--columns``. A model of CoNLL-U keeps the names of columns and label
(``source_``): `tag`, `evaluate` and `explain` need not be told again, and `tag` knows where to write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from crfield.cli.paths import READS
from crfield.cli.reading import (
    Examples,
    Format,
    Text,
    check_names,
    check_template,
    default_template,
    guess_format,
    load_template,
    named_conllu,
    placed,
    read_attributes,
    read_tokens,
    read_words,
)
from crfield.data.texts.conllu import parse_conllu
from crfield.errors import InputError
from crfield.features.text.transformer import TextFeatures
from crfield.storage.datasets.word_lists import read_clusters, read_lexicon

_DATA = "Data"


class Features(StrEnum):
    """What features are made of words."""

    template = "template"
    text = "text"


FeaturesOption = Annotated[
    Features | None,
    typer.Option(
        metavar="KIND",
        help="Features of words: template (the default), or text (windows, shapes, affixes, lists).",
        rich_help_panel=_DATA,
    ),
]
LexiconOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="With --features text: a list of entries, one a line, called as its file; may be given again.",
        rich_help_panel=_DATA,
    ),
    READS,
]
ClustersOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="With --features text: bit strings of words (Brown).", rich_help_panel=_DATA),
    READS,
]
ColumnsOption = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,…",
        help="Columns of CoNLL-U to read: form, lemma, upos, feats.Number, …",
        show_default="form",
        rich_help_panel=_DATA,
    ),
]
LabelOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Label column of CoNLL-U: upos, xpos, upos+feats, …",
        show_default="upos",
        rich_help_panel=_DATA,
    ),
]


@dataclass(frozen=True)
class Chosen:
    """What the options say of the files to train on."""

    template: str | None = None
    format: Format = Format.auto
    label_column: int = -1
    features: Features | None = None
    lexicons: Sequence[str] = ()
    clusters: str | None = None
    columns: str | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        text = self.features is Features.text
        if self.template is not None and self.format is Format.crfsuite:
            raise typer.BadParameter("a template is for column files: leave out --template or --format crfsuite.")
        if text and (self.template is not None or self.format is Format.crfsuite):
            raise typer.BadParameter(
                "--features text makes features of words: leave out --template and --format crfsuite."
            )
        if (self.lexicons or self.clusters) and not text:
            raise typer.BadParameter("--lexicon and --clusters go with --features text.")
        if (self.columns or self.label) and self.format not in (Format.auto, Format.conllu):
            raise typer.BadParameter("--columns and --label name columns of CoNLL-U files (--format conllu).")
        check_names(self.columns, self.label or "upos")

    def format_of(self, name: str, head: bytes) -> Format:
        """The format of a file, by its name and its first bytes."""
        if self.format is not Format.auto:
            return self.format
        if self.columns is not None or self.label is not None or named_conllu(name):
            return Format.conllu
        if self.template is not None:
            return Format.columns
        guessed = guess_format(head)
        return Format.columns if self.features is Features.text and guessed is Format.crfsuite else guessed

    @property
    def source(self) -> dict[str, str]:
        """What a model of CoNLL-U keeps."""
        return {"format": "conllu", "columns": self.columns or "form", "label": self.label or "upos"}

    def options(self, numbers: Sequence[int], names: Sequence[str] | None, used: Any) -> dict[str, Any]:
        """Parameters of a model that reads these columns; ``used`` is a template that was given."""
        if self.features is not Features.text:
            return {"template": used if used is not None else default_template(numbers)}
        called = [
            "word",
            *(names[1:] if names else (["tag"] + [f"column{n}" for n in numbers[2:]])[: len(numbers) - 1]),
        ]
        lexicons = dict(map(_lexicon, self.lexicons)) or None
        clusters = None if self.clusters is None else read_clusters(self.clusters)
        return {"features": TextFeatures(columns=dict(zip(called, numbers)), lexicons=lexicons, clusters=clusters)}


@dataclass(frozen=True)
class Training:
    """Labelled sequences, the parameters of a model that reads them, and what it is to remember."""

    examples: Examples
    options: dict[str, Any]
    source: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_training(sources: Sequence[str], chosen: Chosen) -> Training:
    """The labelled data of some files, with the template or the features for them."""
    used = None if chosen.template is None else load_template(chosen.template)
    text = Text(sources)
    format = chosen.format_of(text.names[0], text.data)
    names = {Format.columns: "columns", Format.crfsuite: "CRFsuite attributes", Format.conllu: "CoNLL-U"}
    told = (
        [f"reading {', '.join(text.names)} as {names[format]}"] if chosen.format is Format.auto and not used else []
    )
    if format is Format.crfsuite:
        return Training(read_attributes(text), {"template": None}, notes=tuple(told))
    if format is Format.conllu:
        columns = check_names(chosen.columns, None)
        examples = read_words(text, chosen.columns, chosen.label or "upos")
        numbers, source = list(range(len(columns))), chosen.source
        shown = " and ".join([", ".join(columns), f"labels {source['label']}"])
    else:
        tokens, label = read_tokens(text, label_column=chosen.label_column)
        examples, source = Examples(tokens, tokens.column(label)), {}
        numbers = [column for column in range(tokens.width) if column != label]
        shown, columns = ", ".join(map(str, numbers)), None
        if not numbers:
            raise InputError(f"{text.names[0]} has one column only, the labels; there is nothing to learn them from.")
        if used is not None:
            check_template(used, tokens, label, text.first_line())
    options = chosen.options(numbers, columns, used)
    if used is not None and format is Format.conllu:
        check_template(used, examples.X, None, text.first_line())  # type: ignore[arg-type]
    if used is None:
        what = "column" if len(numbers) == 1 else "columns"
        how = "no template: using {} {} two steps either way, and transitions"
        told.append(("text features of {} {}" if chosen.features is Features.text else how).format(what, shown))
    return Training(examples, options, source, tuple(told))


def read_parts(blocks: Iterator[Any], name: str, chosen: Chosen, used: Any) -> Iterator[tuple[Any, ...]]:
    """(X, y) of the blocks of a CoNLL-U file."""
    for block in blocks:
        with placed(lambda line, first=block.line: (name, first + line - 1)):  # type: ignore[misc]
            X, y, _ = parse_conllu(
                block.data, columns=check_names(chosen.columns, None), label=chosen.label or "upos"
            )
        if len(X):
            check_template(used, X, None, (name, block.line))
            yield X, y


def _lexicon(path: str) -> tuple[str, list[str]]:
    """A lexicon is called as its file without the ending."""
    return Path(path).name.partition(".")[0] or "lexicon", read_lexicon(path)
