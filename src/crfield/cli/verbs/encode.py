"""``crfield encode``: labelled files of any size in, an encoded data set on disk out.

The files are read twice, in blocks of whole sequences, so memory does not grow with them (the alphabet of features
does); with ``--cluster`` by as many workers as there are files. ``crfield train --encoded`` trains on the result,
shard by shard.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

import typer

from crfield.cli.cluster import ClusterOption, WorkersOption, on_cluster
from crfield.cli.messages import emit, listing, note, say, size_of
from crfield.cli.options import Json, Quiet, chain_parameters
from crfield.cli.paths import READS_THEN_FILLS
from crfield.cli.reading import Format, Reads, check_names, check_template, placed
from crfield.cli.sources import Chosen, Files
from crfield.data.texts.conll import parse_columns
from crfield.data.texts.conllu import parse_conllu
from crfield.data.texts.crfsuite import parse_crfsuite
from crfield.errors import FormatError, InputError
from crfield.estimators.chain.encode_on_cluster import encode_on_cluster
from crfield.estimators.chain.on_disk import encode_dataset
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
    files: Files,
    chain: Annotated[dict[str, Any], chain_parameters("min_count")],
    shard_size: Annotated[
        int, typer.Option(min=1, metavar="MB", help="Size of a shard; training holds one in memory.")
    ] = 32,
    cluster: ClusterOption = None,
    workers: WorkersOption = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Encode labelled files for training from disk: crfield encode INPUT... OUTPUT."""
    *sources, output = data
    if not sources:
        raise typer.BadParameter("name the files to encode and then the folder to write: INPUT... OUTPUT.")
    if "-" in data:
        raise typer.BadParameter("the files are read twice, so standard input ('-') cannot be encoded. Name files.")
    began = time.perf_counter()
    files.check_words()
    used = files.load_template()
    first = next(read_blocks(sources[0], size=1 << 16), None)
    if first is None or not first.data.strip():
        raise InputError(f"{name_of(sources[0])}: expected labelled sequences, found nothing but blank lines.")
    format = files.format_of(sources[0], first.data)
    options: dict[str, Any] = {"template": None}
    if format is not Format.crfsuite:
        names: list[str] | None = None
        if format is Format.conllu:
            names = check_names(files.columns, None)
            numbers = list(range(len(names)))
        else:
            width = parse_columns(first.data).width
            numbers = [column for column in range(width) if column != files.label_column % width]
        options = files.options(numbers, names, used)
        if used is None:
            listed = ", ".join(names or map(str, numbers))
            how = "text features of" if "features" in options else "no template: using"
            note(f"{how} columns {listed} two steps either way", quiet=quiet)
    reads = Reads.by(options, {})
    read = partial(_parts, format=format, files=files, reads=reads)
    common = {**options, **chain, "shard_bytes": shard_size * 1_000_000}
    with on_cluster(cluster, workers, None) as block:
        if block is not None:
            dataset = encode_on_cluster(block, sources, read, output, **common)
        else:
            dataset = encode_dataset(lambda: (part for source in sources for part in read(source)), output, **common)
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


def _parts(source: str, format: Format, files: Chosen, reads: Reads) -> Iterator[tuple[Any, ...]]:
    """(X, y), or (X, y, weights) of CRFsuite's files, of the blocks of a file."""
    name = name_of(source)
    for block in read_blocks(source, size=BLOCK):
        if not block.data.strip():
            continue
        with placed(lambda line, first=block.line: (name, first + line - 1)):  # type: ignore[misc]
            label: int | None = None
            found: tuple[Any, ...]
            if format is Format.crfsuite:
                found = parse_crfsuite(block.data)
            elif format is Format.conllu:
                columns = check_names(files.columns, None)
                found = parse_conllu(block.data, columns=columns, label=files.label or "upos")[:2]
            else:
                tokens = parse_columns(block.data)
                label = _label_column(files.label_column, tokens.width, name, block.line) if len(tokens) else None
                found = (tokens, None if label is None else tokens.column(label))
            if len(found[0]):
                check_template(reads.columns, found[0], label, (name, block.line))
                yield found


def _label_column(asked: int, width: int, file: str, line: int) -> int:
    if not -width <= asked < width:
        raise FormatError(f"--label-column {asked} was asked of lines with {width} columns.", file=file, line=line)
    return asked % width
