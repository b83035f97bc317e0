"""Encoded data on disk: columns and labels in shards of bounded size, read one at a time.

A data set is a folder:

    dataset.crfield       header: counts, the labels, the state of the encoder, a row for each shard
    shard-00000.crfield   archives (`storage.archive`) of the arrays of a `Batch` and of a `Target`
    …
    packed/               what training has made of them (`storage.packed`): may be removed at any time

The encoder's state is opaque here; who made it reads it. Everything is checked: the header when the data set is
opened, and a shard whenever it is read (length, checksum of every array, and that it is the shard that the header
lists); numbers of columns and labels must lie in range. So a file that is damaged, cut, or from another set ends in
`ModelFileError`.

Arrays of a shard are views of the mapped file; they are let go with the shard, and with them the memory. A writer
collects sequences until a shard is full: a shard is larger than asked for only by its last sequence. The folder
appears under its name when it is complete.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from crfield.core.checks import flag
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.data.labels import LabelCoder
from crfield.errors import CrfieldError, InputError, ModelFileError
from crfield.storage.archive import read_archive, write_archive
from crfield.storage.digests import digest
from crfield.storage.files import forget, remove_leftovers, sync_folder, temporary_name
from crfield.storage.packed import remove_packed

KIND, SHARD = "encoded_dataset", "encoded_shard"
FRONT = "dataset.crfield"
SHARD_BYTES = 32_000_000


@dataclass(frozen=True, eq=False)
class Shard:
    """Some sequences of a data set: their columns and their labels."""

    batch: Batch
    target: Target


class EncodedDataset:
    """An encoded data set on disk, written by `crfield encode` or `crfield.encode_dataset`; opened, not loaded.

    ``fit`` of `ChainCRF` takes it in place of X and y, and reads it shard by shard. What it makes of the shards it
    keeps: in memory while they are few (32 MB of shards), else in the folder ``packed`` of the data set, which takes
    about as much room again. ``packed`` of True or False has it always or never kept in the folder.

    >>> import tempfile
    >>> from crfield import ChainCRF, encode_dataset
    >>> parts = [([[["sun"], ["rain"]]], [["walk", "read"]])] * 3
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dataset = encode_dataset(parts, os.path.join(folder, "weather"))
    ...     model = ChainCRF().fit(dataset)
    >>> dataset
    EncodedDataset(3 sequences, 6 steps, 2 labels, 1 shard)
    >>> model.predict([[["rain"]]])[0].tolist()
    ['read']
    """

    def __init__(self, path: str | os.PathLike[str], *, packed: bool | None = None) -> None:
        self.path = os.fspath(path)
        if packed is not None:
            flag("packed", packed)
        self.packed = packed
        front = os.path.join(self.path, FRONT)
        if not os.path.isfile(front):
            raise InputError(
                f"{self.path} is no encoded data set: it has no file {FRONT}. Write one with crfield encode."
            )
        archive = read_archive(front)
        header = archive.header
        if header.get("kind") != KIND:
            raise ModelFileError(f"{front} is of kind {header.get('kind')!r}, not an encoded data set.")
        counts: list[Any] = [header.get(name) for name in ("n_sequences", "n_steps", "n_columns", "n_dense")]
        edge: Any = header.get("edge")
        rows: Any = header.get("shards")
        good = all(type(n) is int and 0 <= n < 2**63 for n in counts) and isinstance(rows, list)
        good = good and max(counts[2:]) < 2**31  # columns are numbered in 32 bits
        good &= edge is None or (
            isinstance(edge, list) and len(edge) == 2 and all(type(n) is int and 0 <= n < 2**31 for n in edge)
        )
        good = good and all(_is_row(row) for row in rows)
        if not good:
            raise ModelFileError(f"{front}: the header of the data set is damaged. Encode the data again.")
        self.n_sequences: int = counts[0]
        self.n_steps: int = counts[1]
        self.n_columns: int = counts[2]
        self.n_dense: int = counts[3]
        self._edge: list[int] | None = edge
        self._rows: list[dict[str, Any]] = rows
        if [sum(row[name] for row in self._rows) for name in ("sequences", "steps")] != counts[:2]:
            raise ModelFileError(f"{front}: the shards do not add up to the data set. Encode the data again.")
        self.coder = LabelCoder.from_json(header.get("labels"))
        self.encoder_state: tuple[Any, dict[str, np.ndarray]] = (header.get("encoder"), dict(archive.arrays))
        self.template: str | None = header["template"] if isinstance(header.get("template"), str) else None
        self.digests: list[str] = [row["digest"] for row in self._rows]

    @property
    def labels(self) -> np.ndarray:
        """(L,) the labels, in the order of their codes."""
        return self.coder.classes_

    @property
    def edge_columns(self) -> list[int] | None:
        """Sparse and dense columns of transitions, where there are any."""
        return self._edge

    @property
    def n_shards(self) -> int:
        """How many shards there are."""
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        """Bytes of all shards on disk."""
        return sum(row["bytes"] for row in self._rows)

    def remove_packed(self) -> None:
        """Remove what training keeps of the data set in its folder; the next one makes it again."""
        remove_packed(self.path)

    def __len__(self) -> int:
        return self.n_sequences

    def shards(self) -> Iterator[Shard]:
        """The shards in order; only the present one is in memory if you keep none."""
        for number in range(self.n_shards):
            yield self.shard(number)

    def shard(self, number: int) -> Shard:
        """Shard ``number``, checked."""
        row, path = self._rows[number], os.path.join(self.path, shard_name(number))
        try:
            archive = read_archive(path, mmap=True)
        except FileNotFoundError:
            raise ModelFileError(f"{path} is missing. Copy the whole folder, or encode the data again.") from None
        header = archive.header
        mine = (
            header.get("kind") == SHARD and header.get("number") == number and header.get("digest") == row["digest"]
        )
        if not mine:
            raise ModelFileError(f"{path} is not shard {number} of this data set. Copy the whole folder again.")
        arrays = archive.arrays
        try:
            chains = Chains(_array(arrays, "offsets", np.int64))
            node = _columns(arrays, "node", self.n_columns, self.n_dense)
            edge = None if self._edge is None else _columns(arrays, "edge", *self._edge)
            labels = self.coder.n_labels
            target = Target(
                chains,
                labels,
                _array(arrays, "labels", np.int32),
                _array(arrays, "allowed", np.bool_) if "allowed" in arrays else None,
                _array(arrays, "weight", np.float64) if "weight" in arrays else None,
            )
            batch = Batch(chains, node, edge)
        except ModelFileError:
            raise
        except (CrfieldError, ValueError, IndexError) as error:
            raise ModelFileError(f"{path} is damaged: {error} Encode the data again.") from None
        if (chains.n_sequences, chains.n_nodes) != (row["sequences"], row["steps"]):
            raise ModelFileError(f"{path} does not hold what the data set lists for it. Encode the data again.")
        return Shard(batch, target)

    def __repr__(self) -> str:
        shards = f"{self.n_shards} shard{'' if self.n_shards == 1 else 's'}"
        return (
            f"EncodedDataset({self.n_sequences} sequences, {self.n_steps} steps, {self.coder.n_labels} labels, "
            f"{shards})"
        )


class DatasetWriter:
    """Writes a data set: ``add`` batches, then ``close``; used in a ``with`` block, it closes itself.

    ``shard_bytes`` is about the size of a shard. Until it is closed, the data set lies in a folder beside its place,
    which is removed when the block ends in an error.
    """

    def __init__(self, path: str | os.PathLike[str], coder: LabelCoder, *, shard_bytes: int = SHARD_BYTES) -> None:
        self.path, self.coder, self.shard_bytes = os.fspath(path), coder, shard_bytes
        if os.path.exists(self.path):
            raise InputError(f"{self.path} exists already. Name another folder for the data set, or remove this one.")
        remove_leftovers(os.path.abspath(self.path))
        self._folder = temporary_name(os.path.abspath(self.path))
        os.makedirs(self._folder)
        self._rows: list[dict[str, Any]] = []
        self._sizes: tuple[int, int, list[int] | None] | None = None
        self._waiting: list[tuple[Batch, Target]] = []
        self._waiting_bytes = 0.0

    def add(self, batch: Batch, target: Target) -> None:
        """Take sequences, and write those that fill shards."""
        edge = None if batch.edge is None else [batch.edge.width, batch.edge.n_dense]
        sizes = (batch.node.width, batch.node.n_dense, edge)
        if self._sizes not in (None, sizes):
            raise InputError(f"batches of one data set must have the same columns, got {sizes} after {self._sizes}.")
        self._sizes = sizes
        self._waiting.append((batch, target))
        self._waiting_bytes += _bytes_up_to(batch, target)[-1]
        if self._waiting_bytes >= self.shard_bytes:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        batch, target = join_batches(self._waiting) if len(self._waiting) > 1 else self._waiting[0]
        self._waiting, self._waiting_bytes = [], 0.0
        offsets, weight, first = batch.topology.offsets, _bytes_up_to(batch, target), 0
        while first < batch.topology.n_sequences:
            stop = int(np.searchsorted(weight, weight[first] + self.shard_bytes, side="left"))
            stop = min(max(stop, first + 1), batch.topology.n_sequences)
            self._write(batch, target, slice(first, stop), slice(int(offsets[first]), int(offsets[stop])))
            first = stop

    def _write(self, batch: Batch, target: Target, sequences: slice, nodes: slice) -> None:
        chains = batch.topology
        arrays = {"offsets": chains.offsets[sequences.start : sequences.stop + 1] - nodes.start}
        arrays |= _cut(batch.node, nodes, "node")
        if batch.edge is not None:
            ends = chains.edge_offsets
            arrays |= _cut(batch.edge, slice(int(ends[sequences.start]), int(ends[sequences.stop])), "edge")
        arrays["labels"] = target.labels[nodes]
        if target.allowed is not None and (arrays["labels"] < 0).any():
            arrays["allowed"] = target.allowed[nodes]
        if target.weight is not None:
            arrays["weight"] = target.weight[sequences]
        number = len(self._rows)
        path = os.path.join(self._folder, shard_name(number))
        name = digest(arrays)[:32]
        write_archive(path, {"kind": SHARD, "number": number, "digest": name}, arrays)
        self._rows.append(
            {
                "sequences": sequences.stop - sequences.start,
                "steps": nodes.stop - nodes.start,
                "bytes": os.path.getsize(path),
                "digest": name,
            }
        )

    def close(
        self, encoder_header: dict[str, Any], encoder_arrays: dict[str, np.ndarray], *, template: str | None = None
    ) -> EncodedDataset:
        """Write the header and give the folder its name."""
        self._flush()
        width, dense, edge = self._sizes or (0, 0, None)
        header = {
            "kind": KIND,
            "n_sequences": sum(row["sequences"] for row in self._rows),
            "n_steps": sum(row["steps"] for row in self._rows),
            "n_columns": width,
            "n_dense": dense,
            "edge": edge,
            "labels": self.coder.to_json(),
            "encoder": encoder_header,
            "template": template,
            "shards": self._rows,
        }
        write_archive(os.path.join(self._folder, FRONT), header, encoder_arrays)
        os.replace(self._folder, self.path)
        sync_folder(os.path.dirname(os.path.abspath(self.path)))
        return EncodedDataset(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if os.path.isdir(self._folder):
            shutil.rmtree(self._folder, ignore_errors=True)
        forget(self._folder)


def join_batches(parts: list[tuple[Batch, Target]]) -> tuple[Batch, Target]:
    """Batches of the same columns end to end, and their targets."""
    batches, targets = [batch for batch, _ in parts], [target for _, target in parts]
    chains = Chains.from_lengths(np.concatenate([batch.topology.lengths for batch in batches]))
    edges = [batch.edge for batch in batches if batch.edge is not None]
    allowed = weight = None
    if any(target.allowed is not None for target in targets):
        allowed = np.concatenate([target.mask for target in targets])
    if any(target.weight is not None for target in targets):
        each = [np.ones(t.topology.n_sequences) if t.weight is None else t.weight for t in targets]
        weight = np.concatenate(each)
    labels = np.concatenate([target.labels for target in targets])
    node, edge = _joined([batch.node for batch in batches]), _joined(edges) if edges else None
    return Batch(chains, node, edge), Target(chains, targets[0].n_labels, labels, allowed, weight)


def _joined(parts: list[Columns]) -> Columns:
    ends = np.cumsum([0, *(part.indptr[-1] for part in parts)])
    indptr = np.concatenate([np.zeros(1, np.int64), *(part.indptr[1:] + end for part, end in zip(parts, ends))])
    values = dense = None
    if any(part.values is not None for part in parts):
        values = np.concatenate([np.ones(len(p.indices)) if p.values is None else p.values for p in parts])
    if parts[0].dense is not None:
        dense = np.concatenate([part.dense for part in parts if part.dense is not None])
    return Columns(indptr, np.concatenate([part.indices for part in parts]), parts[0].width, values, dense)


def shard_name(number: int) -> str:
    """The name of a shard's file.

    >>> shard_name(7)
    'shard-00007.crfield'
    """
    return f"shard-{number:05d}.crfield"


def _is_row(row: Any) -> bool:
    names = ("sequences", "steps", "bytes")
    if not isinstance(row, dict) or not isinstance(row.get("digest"), str):
        return False
    return all(type(row.get(name)) is int and row[name] >= 0 for name in names)


def _bytes_up_to(batch: Batch, target: Target) -> np.ndarray:
    """(B + 1,) bytes on disk of all sequences before each."""
    offsets = batch.topology.offsets
    total = np.zeros(len(offsets))
    for columns, ends in ((batch.node, offsets), (batch.edge, batch.topology.edge_offsets)):
        if columns is not None:
            each = 4 if columns.values is None else 12
            total += columns.indptr[ends] * each + ends * (8 + 8 * columns.n_dense)
    return total + offsets * (4 + (0 if target.allowed is None else target.n_labels)) + 8 * np.arange(len(offsets))


def _cut(columns: Columns, rows: slice, prefix: str) -> dict[str, np.ndarray]:
    indptr = columns.indptr[rows.start : rows.stop + 1]
    entries = slice(int(indptr[0]), int(indptr[-1]))
    made = {f"{prefix}/indptr": indptr - indptr[0], f"{prefix}/indices": columns.indices[entries]}
    if columns.values is not None:
        made[f"{prefix}/values"] = columns.values[entries]
    if columns.dense is not None:
        made[f"{prefix}/dense"] = columns.dense[rows]
    return made


def _array(arrays: Any, name: str, dtype: Any) -> np.ndarray:
    if name not in arrays or arrays[name].dtype != dtype:
        raise ModelFileError(f"the shard has no array {name!r} of {np.dtype(dtype)}. Encode the data again.")
    found: np.ndarray = arrays[name]
    return found


def _columns(arrays: Any, prefix: str, width: int, n_dense: int) -> Columns:
    indptr, indices = _array(arrays, f"{prefix}/indptr", np.int64), _array(arrays, f"{prefix}/indices", np.int32)
    good = indptr.ndim == 1 and len(indptr) > 0 and indptr[0] == 0 and bool((indptr[1:] >= indptr[:-1]).all())
    good = good and indices.shape == (indptr[-1],)
    if not good or (len(indices) and not 0 <= indices.min() <= indices.max() < width):
        raise ModelFileError(f"the columns of the shard do not lie in 0 … {width - 1}. Encode the data again.")
    values = _array(arrays, f"{prefix}/values", np.float64) if f"{prefix}/values" in arrays else None
    dense = _array(arrays, f"{prefix}/dense", np.float64) if f"{prefix}/dense" in arrays else None
    if (0 if dense is None else dense.shape[-1]) != n_dense:
        raise ModelFileError(f"the shard must have {n_dense} dense columns. Encode the data again.")
    for numbers in (values, dense):
        if numbers is not None and not np.isfinite(numbers).all():
            raise ModelFileError("the shard holds numbers that are not finite. Encode the data again.")
    return Columns(indptr, indices, width, values, dense)
