"""Files to train on: what the options say of them, and the labelled sequences that they hold.

Column files and CoNLL-U go through a CRF++ template or, with ``--features text``, through `TextFeatures`; CRFsuite's
files bring their features along. Of CoNLL-U the chosen columns are read as if they were the file's only ones, so that
the template's column 0 is the first of ``--columns``. A model of CoNLL-U keeps the names of columns and label
(``source_``): `tag`, `evaluate` and `explain` need not be told again, and `tag` knows where to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from crfield.cli import options
from crfield.cli.messages import note
from crfield.cli.reading import (
    Examples,
    Format,
    Reads,
    Text,
    check_names,
    check_template,
    default_template,
    guess_format,
    load_template,
    named_conllu,
    read_attributes,
    read_tokens,
    read_words,
)
from crfield.errors import InputError
from crfield.features.templates.template import Template
from crfield.features.text.transformer import TextFeatures
from crfield.storage.datasets.word_lists import read_clusters, read_lexicon


@dataclass(frozen=True)
class Chosen:
    """What the options say of the files to train on."""

    template: options.TemplateOption = None
    format: options.FormatOption = Format.auto
    label_column: options.LabelColumnOption = -1
    features: options.FeaturesOption = None
    lexicon: options.LexiconOption = None
    clusters: options.ClustersOption = None
    columns: options.ColumnsOption = None
    label: options.LabelOption = None

    def __post_init__(self) -> None:
        text = self.features is options.Features.text
        if self.template is not None and self.format is Format.crfsuite:
            raise typer.BadParameter("a template is for column files: leave out --template or --format crfsuite.")
        if text and (self.template is not None or self.format is Format.crfsuite):
            raise typer.BadParameter(
                "--features text makes features of words: leave out --template and --format crfsuite."
            )
        if (self.lexicon or self.clusters) and not text:
            raise typer.BadParameter("--lexicon and --clusters go with --features text.")
        if (self.columns or self.label) and self.format in (Format.columns, Format.crfsuite):
            raise typer.BadParameter(
                "--columns and --label name columns of CoNLL-U files (--format conllu) and tables."
            )

    def check_words(self) -> None:
        """A wrong command line where the options are about tables, or about columns that CoNLL-U does not have."""
        words = (None, options.Features.template, options.Features.text)
        if self.format in (Format.table, Format.tracks) or self.features not in words:
            raise typer.BadParameter("this verb reads text files; train, select, tag and evaluate read tables too.")
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
        return Format.columns if self.features is options.Features.text and guessed is Format.crfsuite else guessed

    @property
    def source(self) -> dict[str, str]:
        """What a model of CoNLL-U keeps."""
        return {"format": "conllu", "columns": self.columns or "form", "label": self.label or "upos"}

    def load_template(self) -> Template | None:
        """The template that was named, if one was."""
        return None if self.template is None else load_template(self.template)

    def options(self, numbers: Sequence[int], names: Sequence[str] | None, used: Template | None) -> dict[str, Any]:
        """Parameters of a model that reads these columns; ``used`` is a template that was given."""
        if self.features is not options.Features.text:
            return {"template": used if used is not None else default_template(numbers)}
        called = [
            "word",
            *(names[1:] if names else (["tag"] + [f"column{n}" for n in numbers[2:]])[: len(numbers) - 1]),
        ]
        lexicons = dict(map(_lexicon, self.lexicon or ())) or None
        clusters = None if self.clusters is None else read_clusters(self.clusters)
        return {"features": TextFeatures(columns=dict(zip(called, numbers)), lexicons=lexicons, clusters=clusters)}


Files = Annotated[Chosen, options.Group.of(Chosen)]


@dataclass(frozen=True)
class Training:
    """Labelled sequences, the parameters of a model that reads them, and what it is to remember."""

    examples: Examples
    options: dict[str, Any]
    source: dict[str, str] = field(default_factory=dict)

    @property
    def reads(self) -> Reads:
        """How the model will read other files."""
        return Reads.by(self.options, self.source)


def read_training(sources: Sequence[str], chosen: Chosen, *, quiet: bool) -> Training:
    """The labelled data of some files, with the template or the features for them; notes say how they are read."""
    chosen.check_words()
    used = chosen.load_template()
    text = Text(sources)
    format = chosen.format_of(text.names[0], text.data)
    names = {Format.columns: "columns", Format.crfsuite: "CRFsuite attributes", Format.conllu: "CoNLL-U"}
    if chosen.format is Format.auto and used is None:
        note(f"reading {', '.join(text.names)} as {names[format]}", quiet=quiet)
    if format is Format.crfsuite:
        return Training(read_attributes(text), {"template": None})
    if format is Format.conllu:
        columns, label = check_names(chosen.columns, None), None
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
    of = f"column{'' if len(numbers) == 1 else 's'} {shown}"
    if used is not None:
        check_template(used, examples.X, label, text.first_line())
    elif chosen.features is options.Features.text:
        note(f"text features of {of}", quiet=quiet)
    else:
        note(f"no template: using {of} two steps either way, and transitions", quiet=quiet)
    return Training(examples, chosen.options(numbers, columns, used), source)


def _lexicon(path: str) -> tuple[str, list[str]]:
    """A lexicon is called as its file without the ending."""
    return Path(path).name.partition(".")[0] or "lexicon", read_lexicon(path)
