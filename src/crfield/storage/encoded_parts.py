"""An encoded data set that is written in parts, by many hands: each writes shards, then all get their numbers.

A part is a folder of shards numbered from 0 (`write_part`); how many there are is known when it is done. When all
parts are, every shard is written once more under its number in the whole (`place_shard`, which any hand may do), and
the header makes the data set complete (`assemble`): until then it lies in a folder beside its place.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from crfield.core.target import Target
from crfield.data.batch import Batch
from crfield.data.labels import LabelCoder
from crfield.errors import InputError
from crfield.storage.archive import read_archive, write_archive
from crfield.storage.encoded import FRONT, KIND, DatasetWriter, EncodedDataset, shard_name
from crfield.storage.files import sync_folder

Rows = list[dict[str, Any]]  # of shards, as a header lists them
Sizes = tuple[int, int, list[int] | None]  # columns, dense columns, and those of edges


def write_part(
    folder: str, coder: LabelCoder, batches: Iterable[tuple[Batch, Target]], *, shard_bytes: int
) -> tuple[Rows, Sizes | None]:
    """Shards of some sequences in a folder of their own; a part that another hand began and left is replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    with DatasetWriter(folder, coder, shard_bytes=shard_bytes) as writer:
        for batch, target in batches:
            writer.add(batch, target)
        writer._flush()
        os.replace(writer._folder, folder)
        return writer._rows, writer._sizes


def place_shard(part: str, number: int, folder: str, place: int) -> None:
    """Write shard ``number`` of a part as shard ``place`` of the whole."""
    archive = read_archive(os.path.join(part, shard_name(number)), mmap=True)
    write_archive(os.path.join(folder, shard_name(place)), {**archive.header, "number": place}, dict(archive.arrays))


def begin(path: str) -> str:
    """The folder in which the parts of a data set are made; InputError if there is one at its place already."""
    if os.path.exists(path):
        raise InputError(f"{path} exists already. Name another folder for the data set, or remove this one.")
    folder = f"{os.path.abspath(path)}.parts"
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(os.path.join(folder, "whole"))
    return folder


def abandon(folder: str) -> None:
    """Remove what was made so far."""
    shutil.rmtree(folder, ignore_errors=True)


def assemble(
    path: str,
    folder: str,
    coder: LabelCoder,
    rows: Sequence[dict[str, Any]],
    sizes: Sizes | None,
    encoder: tuple[dict[str, Any], dict[str, np.ndarray]],
    *,
    template: str | None,
) -> EncodedDataset:
    """Write the header beside the shards, and give the folder its name."""
    width, dense, edge = sizes or (0, 0, None)
    header = {
        "kind": KIND,
        "n_sequences": sum(row["sequences"] for row in rows),
        "n_steps": sum(row["steps"] for row in rows),
        "n_columns": width,
        "n_dense": dense,
        "edge": edge,
        "labels": coder.to_json(),
        "encoder": encoder[0],
        "template": template,
        "shards": list(rows),
    }
    whole = os.path.join(folder, "whole")
    write_archive(os.path.join(whole, FRONT), header, encoder[1])
    os.replace(whole, path)
    shutil.rmtree(folder, ignore_errors=True)
    sync_folder(os.path.dirname(os.path.abspath(path)))
    return EncodedDataset(path)
