"""Encoding on a cluster: many files, each read where there is time for it.

As alone (`crfield.encode_dataset`) there are two passes over the files. In the first each file is learnt by a worker,
columns, labels and how often columns occur; the driver puts together what they learnt, in the order of the files, so
that columns have the numbers of one pass over all (`crfield.features.merging`). In the second each file is written by
a worker as shards of its own, and at last every shard gets its number. Shards do not cross files: many small files
make many small shards, and one large file is the work of one worker.

Files, and the folder that is written, lie where all workers see them. Memory is that of one file's columns in each
worker, and of one alphabet at the driver.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from crfield.data.labels import LabelCoder
from crfield.errors import InputError
from crfield.estimators.chain.on_disk import Learnt, encoded_parts, learn_columns
from crfield.features.encoder import Encoder
from crfield.features.growth import without_rare
from crfield.features.merging import merged
from crfield.features.templates.template import Template
from crfield.storage.encoded import SHARD_BYTES, EncodedDataset
from crfield.storage.encoded_parts import Rows, Sizes, abandon, assemble, begin, place_shard, write_part
from crfield.storage.exchange import template_text
from crfield.training.cluster.session import Cluster

Read = Callable[[str], Iterable[Sequence[Any]]]  # the parts (X, y) or (X, y, weights) of a file


def encode_on_cluster(
    cluster: Cluster,
    files: Sequence[str],
    read: Read,
    path: str | os.PathLike[str],
    *,
    min_count: int = 1,
    shard_bytes: int = SHARD_BYTES,
    **options: Any,
) -> EncodedDataset:
    """An encoded data set of many files; ``read(file)`` gives its parts, ``options`` are those of the encoder."""
    options["template"] = template_text(options.get("template"))
    folder = begin(os.fspath(path))
    try:
        together: Learnt | None = None
        for _, learnt in cluster.each(learn_file, [(file,) for file in files], read, options, min_count, names=files):
            together = learnt if together is None or learnt is None else joined(together, learnt)
        if together is None:
            raise InputError("there is nothing to encode: the files hold no sequences.")
        encoder, coder = together.encoder, LabelCoder().fit([together.coder.labels])
        if min_count > 1:
            encoder = without_rare(encoder, *(count >= min_count for count in together.counts))
        parts = [os.path.join(folder, f"part-{number:05d}") for number in range(len(files))]
        rows: Rows = []
        sizes: Sizes | None = None
        moves: list[tuple[str, int, str, int]] = []
        cases = list(zip(files, parts))
        for number, (made, size) in cluster.each(
            write_file, cases, read, encoder, coder, int(shard_bytes), names=files
        ):
            sizes = size or sizes
            for shard, row in enumerate(made):
                moves.append((parts[number], shard, os.path.join(folder, "whole"), len(rows)))
                rows.append(row)
        for _ in cluster.each(place_shard, moves):
            pass
        template = options["template"]
        text = template.text if isinstance(template, Template) else template
        return assemble(os.fspath(path), folder, coder, rows, sizes, encoder.state(), template=text)
    except BaseException:
        abandon(folder)
        raise


def learn_file(file: str, read: Read, options: dict[str, Any], least: int) -> Learnt | None:
    """In a worker, first pass: what a file has of columns and labels; None of a file without sequences."""
    return learn_columns(lambda: read(file), options, count=least > 1)


def joined(one: Learnt, other: Learnt) -> Learnt:
    """What two runs of files have together."""
    found = merged(one.encoder, other.encoder)
    counts = []
    for mine, theirs, places in zip(one.counts, other.counts, (found.node, found.edge)):
        total = np.zeros(max(len(mine), int(places.max(initial=-1)) + 1), np.int64)
        total[: len(mine)] = mine
        np.add.at(total, places[: len(theirs)], theirs)
        counts.append(total)
    labels = LabelCoder().fit([[*one.coder.labels, *other.coder.labels]])
    return Learnt(found.encoder, labels, (counts[0], counts[1]))


def write_file(
    file: str, folder: str, read: Read, encoder: Encoder, coder: LabelCoder, shard_bytes: int
) -> tuple[Rows, Sizes | None]:
    """In a worker, second pass: the shards of a file."""
    batches = encoded_parts(lambda: read(file), encoder, coder)
    return write_part(folder, coder, batches, shard_bytes=shard_bytes)
