"""``crfield encode``: labelled files of any size in, an encoded data set on disk out.

The files are read twice, in blocks of whole sequences, so memory does not grow with them (the alphabet of features
does). ``crfield train --encoded`` trains on the result, shard by shard.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from crfield.cli import reading
from crfield.cli.messages import emit, listing, note, say, size_of
from crfield.cli.paths import READS, READS_THEN_FILLS
from crfield.cli.reading import Format, WordColumns, check_names, check_template, placed, template_of
from crfield.cli.sources import (
    Chosen,
    ClustersOption,
    ColumnsOption,
    FeaturesOption,
    LabelOption,
    LexiconOption,
    read_parts,
)
from crfield.data.texts.conll import parse_columns
from crfield.data.texts.crfsuite import parse_crfsuite
from crfield.errors import FormatError, InputError
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.chain.on_disk import encode_dataset
from crfield.features.templates.template import Template
from crfield.storage.blocks import read_blocks
from crfield.storage.files import name_of

BLOCK = 16_000_000  # bytes of text read at a time


def encode(
    data: Annotated[
        list[str],
        typer.Argument(metavar="INPUT... OUTPUT", help="Labelled files, plain or gzip; then the folder."),
        READS_THEN_FILLS,
    ],
    *,
    template: Annotated[
        str | None,
        typer.Option(
            "--template",
            "-t",
            metavar="FILE",
            help="CRF++ template for column files. Without one every column is read two steps either way.",
        ),
        READS,
    ] = None,
    format: Annotated[Format, typer.Option(metavar="FORMAT", help=f"What the files hold: {', '.join(Format)}.")] = (
        Format.auto
    ),
    label_column: Annotated[
        int, typer.Option(metavar="N", help="Column of the labels, from 0; -1 is the last.")
    ] = -1,
    features: FeaturesOption = None,
    lexicon: LexiconOption = None,
    clusters: ClustersOption = None,
    columns: ColumnsOption = None,
    label: LabelOption = None,
    min_count: Annotated[int, typer.Option(min=1, metavar="N", help="Features seen less often are dropped.")] = 1,
    shard_size: Annotated[
        int, typer.Option(min=1, metavar="MB", help="Size of a shard; training holds one in memory.")
    ] = 32,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings and errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Report as one JSON object.")] = False,
) -> None:
    """Encode labelled files for training from disk: crfield encode INPUT... OUTPUT."""
    *sources, output = data
    if not sources:
        raise typer.BadParameter("name the files to encode and then the folder to write: INPUT... OUTPUT.")
    if "-" in data:
        raise typer.BadParameter("the files are read twice, so standard input ('-') cannot be encoded. Name files.")
    began = time.perf_counter()
    chosen = Chosen(template, format, label_column, features, lexicon or (), clusters, columns, label)
    used = None if template is None else reading.load_template(template)
    first = next(read_blocks(sources[0], size=1 << 16), None)
    if first is None or not first.data.strip():
        raise InputError(f"{name_of(sources[0])}: expected labelled sequences, found nothing but blank lines.")
    format = chosen.format_of(sources[0], first.data)
    reads: dict[str, Any] = {"template": None}
    if format is not Format.crfsuite:
        names: list[str] | None = None
        if format is Format.conllu:
            names = check_names(columns, None)
            numbers = list(range(len(names)))
        else:
            width = parse_columns(first.data).width
            numbers = [column for column in range(width) if column != label_column % width]
        reads = chosen.options(numbers, names, used)
        if used is None:
            listed = ", ".join(names or map(str, numbers))
            how = "text features of" if "features" in reads else "no template: using"
            note(f"{how} columns {listed} two steps either way", quiet=quiet)

    def parts() -> Iterator[tuple[Any, ...]]:
        for source in sources:
            if format is Format.conllu:
                blocks = read_blocks(source, size=BLOCK)
                yield from read_parts(blocks, name_of(source), chosen, template_of(ChainCRF(**reads)))
            else:
                held = None if format is Format.crfsuite else template_of(ChainCRF(**reads))
                yield from _parts(source, held, label_column)

    dataset = encode_dataset(parts, output, **reads, min_count=min_count, shard_bytes=shard_size * 1_000_000)
    seconds = time.perf_counter() - began
    facts = {
        "data set": output,
        "sequences": len(dataset),
        "steps": dataset.n_steps,
        "labels": len(dataset.labels),
        "columns": dataset.n_columns,
        "shards": dataset.n_shards,
        "bytes": dataset.nbytes,
        "seconds": round(seconds, 3),
    }
    if as_json:
        emit(facts)
    elif not quiet:
        shown = {name: f"{value:,}" if isinstance(value, int) else str(value) for name, value in facts.items()}
        say(listing({**shown, "bytes": size_of(dataset.nbytes), "seconds": f"{seconds:.1f}"}))


def _parts(source: str, template: Template | WordColumns | None, label_column: int) -> Iterator[tuple[Any, ...]]:
    """(X, y) or (X, y, weights) of the blocks of a file."""
    name = name_of(source)
    for block in read_blocks(source, size=BLOCK):
        if not block.data.strip():
            continue
        with placed(lambda line, first=block.line: (name, first + line - 1)):  # type: ignore[misc]
            if template is None:
                X, y, weights = parse_crfsuite(block.data)
                if len(X):
                    yield (X, y, weights)
                continue
            tokens = parse_columns(block.data)
            if not len(tokens):
                continue
            if not -tokens.width <= label_column < tokens.width:
                raise FormatError(
                    f"--label-column {label_column} was asked of lines with {tokens.width} columns.",
                    file=name,
                    line=block.line,
                )
            label = label_column % tokens.width
            check_template(template, tokens, label, (name, block.line))
            yield (tokens, tokens.column(label))
