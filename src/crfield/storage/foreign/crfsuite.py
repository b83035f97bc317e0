"""Model files of CRFsuite ("lCRF"), read and written.

    byte 0    48 bytes   "lCRF", bytes of the file, "FOMC", version 100, (0), L labels, A attributes, and where the
                         five chunks below begin
         FEAT            features of 20 bytes: kind (0 state, 1 transition), source, label, weight as a double
         CQDB, CQDB      names of the labels, of the attributes
         LFRF, AFRF      for each label (and two that stay empty) its transitions, for each attribute its features

(Okazaki 2007, *CRFsuite*.) A first-order chain without intercepts: the score of a step is the sum of value × weight
over its attributes, that of a pair of labels one weight. CRFsuite follows the references without a look, so a damaged
file ends its process; here every size, offset, number and reference is checked before it is used, lists are checked
to name each feature once, and names by their hashes. What a damaged file can cost is its own size, a few times.

Written files are, byte for byte, what CRFsuite writes for the same weights.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import NoReturn

import numpy as np

from crfield.errors import InputError, ModelFileError
from crfield.storage.files import Source, name_of, read_bytes, write_bytes
from crfield.storage.foreign.cqdb import build_cqdb, parse_cqdb, words

MAGIC = b"lCRF"
_HEAD = struct.Struct("<4sI4s9I")
_CHUNK = struct.Struct("<4sII")
_FEATURE = np.dtype([("kind", "<u4"), ("source", "<u4"), ("label", "<u4"), ("weight", "<f8")])
_VERSION = 100
_MOST = 1 << 32


@dataclass(frozen=True, eq=False)
class CrfsuiteModel:
    """What such a file says: names, and weights in the order of (attribute, label) and of (label before, label).

    >>> model = CrfsuiteModel.of(["N", "V"], ["w=a"], state={("w=a", "N"): 1.5}, transitions={("N", "V"): -0.5})
    >>> again = parse_crfsuite_model(format_crfsuite_model(model))
    >>> again.labels, again.attributes(), again.state_weight.tolist(), again.pair.tolist()
    (('N', 'V'), ['w=a'], [1.5], [1])
    """

    labels: tuple[str, ...]
    pool: np.ndarray  # names of the A attributes, UTF-8 end to end
    offsets: np.ndarray  # (A + 1,) int64
    attribute: np.ndarray  # (F,) int64, rising
    label: np.ndarray  # (F,) int64, rising within an attribute
    state_weight: np.ndarray  # (F,) float64
    pair: np.ndarray  # (P,) int64, rising: label before · L + label
    pair_weight: np.ndarray  # (P,) float64

    @classmethod
    def of(
        cls,
        labels: list[str],
        attributes: list[str],
        *,
        state: dict[tuple[str, str], float],
        transitions: dict[tuple[str, str], float],
    ) -> CrfsuiteModel:
        """A model from names and dicts of weights; for small ones."""
        of_label = {name: k for k, name in enumerate(labels)}
        of_attribute = {name: k for k, name in enumerate(attributes)}
        rows = sorted((of_attribute[a], of_label[b], weight) for (a, b), weight in state.items())
        pairs = sorted((of_label[a] * len(labels) + of_label[b], weight) for (a, b), weight in transitions.items())
        names = [name.encode() for name in attributes]
        return cls(
            tuple(labels),
            np.frombuffer(b"".join(names), np.uint8),
            np.concatenate([np.zeros(1, np.int64), np.cumsum([len(name) for name in names], dtype=np.int64)]),
            np.array([row[0] for row in rows], np.int64),
            np.array([row[1] for row in rows], np.int64),
            np.array([row[2] for row in rows], np.float64),
            np.array([row[0] for row in pairs], np.int64),
            np.array([row[1] for row in pairs], np.float64),
        )

    def attributes(self) -> list[str]:
        """The names of the attributes."""
        return [name.decode("utf-8", "surrogatepass") for name in _cut(self.pool, self.offsets)]


def read_crfsuite_model(source: Source) -> CrfsuiteModel:
    """The model in a file, checked; `ModelFileError` when it is damaged."""
    try:
        return parse_crfsuite_model(read_bytes(source))
    except ModelFileError as error:
        raise ModelFileError(f"{name_of(source)}: {error}") from None


def write_crfsuite_model(target: Source, model: CrfsuiteModel) -> None:
    """Write the model for CRFsuite, atomically."""
    write_bytes(target, format_crfsuite_model(model))


# ------------------------------------------------------------------------ reading


def parse_crfsuite_model(data: bytes) -> CrfsuiteModel:
    """The model that the bytes of a file are."""
    if len(data) < _HEAD.size or data[:4] != MAGIC:
        _refuse(f"it has {len(data)} bytes and does not begin as a CRFsuite model does")
    _, size, kind, version, _, n_labels, n_attributes, *places = _HEAD.unpack(data[: _HEAD.size])
    if kind != b"FOMC" or version != _VERSION:
        _refuse(f"it is of type {kind!r}, version {version}; known is b'FOMC', version {_VERSION}")
    if size != len(data):
        _refuse(f"it should have {size:,} bytes and has {len(data):,}")
    if n_labels < 1 or max(n_labels, n_attributes) > len(data):
        _refuse(f"it claims {n_labels:,} labels and {n_attributes:,} attributes")
    file = np.frombuffer(data, np.uint8)
    if max(places) > len(data) or min(places) < _HEAD.size:
        _refuse("a part of it would lie outside of the file")
    features = _features(file[places[0] :])
    label_pool, label_offsets = parse_cqdb(file[places[1] :], n_labels, "labels")
    pool, offsets = parse_cqdb(file[places[2] :], n_attributes, "attributes")
    state = features["kind"] == 0
    _check_references(file, places[3], b"LFRF", n_labels, 2, features["source"], np.flatnonzero(~state))
    _check_references(file, places[4], b"AFRF", n_attributes, 0, features["source"], np.flatnonzero(state))
    source, label = features["source"].astype(np.int64), features["label"].astype(np.int64)
    if (label >= n_labels).any() or (source >= np.where(state, n_attributes, n_labels)).any():
        _refuse("a feature names a label or an attribute that is not there")
    key = source * n_labels + label
    cell, weight = _sorted(key[state], features["weight"][state])
    pair, pair_weight = _sorted(key[~state], features["weight"][~state])
    try:
        labels = tuple(name.decode() for name in _cut(label_pool, label_offsets))
        pool.tobytes().decode()
    except UnicodeDecodeError as error:
        raise ModelFileError(
            f"the names in the CRFsuite model are not UTF-8 ({error.reason}). Train again with data in UTF-8."
        ) from None
    return CrfsuiteModel(labels, pool, offsets, cell // n_labels, cell % n_labels, weight, pair, pair_weight)


def _features(chunk: np.ndarray) -> np.ndarray:
    magic, size, count = _CHUNK.unpack(chunk[: _CHUNK.size].tobytes()) if len(chunk) >= _CHUNK.size else (b"", 0, 0)
    if magic != b"FEAT" or size != _CHUNK.size + _FEATURE.itemsize * count or size > len(chunk):
        _refuse("its list of features is not one, or is cut")
    features = chunk[_CHUNK.size : size].view(_FEATURE)
    if (features["kind"] > 1).any():
        _refuse("a feature is neither one of a state nor of a transition")
    if not np.isfinite(features["weight"]).all():
        _refuse("a weight is not a finite number")
    return features


def _check_references(
    file: np.ndarray, at: int, magic: bytes, count: int, more: int, source: np.ndarray, wanted: np.ndarray
) -> None:
    """Each of ``count`` sources must list its own features, and the ``wanted`` features be listed once."""
    name = magic.decode()
    chunk = file[at : at + _CHUNK.size].tobytes()
    if len(chunk) < _CHUNK.size:
        _refuse(f"its references {name} are cut")
    found, size, listed = _CHUNK.unpack(chunk)
    if found != magic or listed not in (count, count + more) or at + max(size, _CHUNK.size + 4 * listed) > len(file):
        _refuse(f"its references {name} are not {count:,} within the file")
    where = file[at + _CHUNK.size : at + _CHUNK.size + 4 * count].view("<u4").astype(np.int64)
    if count and (where.min() < _HEAD.size or where.max() > len(file) - 4):
        _refuse(f"a reference {name} points outside of the file")
    lengths = words(file, where)
    if lengths.sum() != len(wanted) or (where + 4 + 4 * lengths > len(file)).any():
        _refuse(f"its references {name} list {int(lengths.sum()):,} features of {len(wanted):,}")
    ends = np.cumsum(lengths)
    places = np.repeat(where + 4 - 4 * (ends - lengths), lengths) + 4 * np.arange(len(wanted))
    features = words(file, places)
    if not np.array_equal(np.sort(features), wanted):
        _refuse(f"its references {name} do not list each feature once")
    if (source[features] != np.repeat(np.arange(count), lengths)).any():
        _refuse(f"a reference {name} lists a feature of another")


def _sorted(key: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(key, kind="stable")
    if (np.diff(key[order]) == 0).any():
        _refuse("a feature is there twice")
    return key[order], weight[order].astype(np.float64)


def _cut(pool: np.ndarray, offsets: np.ndarray) -> list[bytes]:
    data, ends = pool.tobytes(), offsets.tolist()
    return [data[a:b] for a, b in pairwise(ends)]


def _refuse(problem: str) -> NoReturn:
    raise ModelFileError(f"the CRFsuite model is damaged or cut: {problem}. Copy the file again, or train again.")


# ------------------------------------------------------------------------ writing


def format_crfsuite_model(model: CrfsuiteModel) -> bytes:
    """The bytes of the file; weights of 0, and attributes without another weight, are left out as CRFsuite does."""
    n_labels = len(model.labels)
    kept, moved = model.state_weight != 0, model.pair_weight != 0
    used, attribute = np.unique(model.attribute[kept], return_inverse=True)
    features = np.zeros(int(kept.sum() + moved.sum()), _FEATURE)
    state, transition = features[: len(attribute)], features[len(attribute) :]
    state["source"], state["label"], state["weight"] = attribute, model.label[kept], model.state_weight[kept]
    pair = model.pair[moved]
    transition["kind"], transition["source"], transition["label"] = 1, pair // n_labels, pair % n_labels
    transition["weight"] = model.pair_weight[moved]
    if not np.isfinite(features["weight"]).all():
        raise InputError("a CRFsuite model holds finite weights only.")
    names = _cut(model.pool, model.offsets)
    chunks = [
        _CHUNK.pack(b"FEAT", _CHUNK.size + features.nbytes, len(features)) + features.tobytes(),
        build_cqdb([label.encode() for label in model.labels]),
        build_cqdb([names[k] for k in used.tolist()]),
    ]
    places = (_HEAD.size + np.cumsum([0, *map(len, chunks)])).tolist()
    first = np.arange(len(transition)) + len(state)
    chunks.append(_references(places[3], b"LFRF", np.bincount(pair // n_labels, minlength=n_labels), first, 2))
    places.append(places[3] + len(chunks[3]))
    counts = np.bincount(attribute, minlength=len(used))
    chunks.append(_references(places[4], b"AFRF", counts, np.arange(len(state)), 0))
    size = places[4] + len(chunks[4])
    if size >= _MOST:
        raise InputError(f"the model needs {size:,} bytes; a CRFsuite model can have 4 GB. Use save.")
    places[3:] = [place + -place % 4 for place in places[3:]]
    head = _HEAD.pack(MAGIC, size, b"FOMC", _VERSION, 0, n_labels, len(used), *places)
    return head + b"".join(chunks)


def _references(at: int, magic: bytes, counts: np.ndarray, features: np.ndarray, more: int) -> bytes:
    """A list of lists at this place, which begins at a multiple of 4: where each lies, and each behind its length."""
    padding = -at % 4
    listed = len(counts) + more
    begin = at + padding + _CHUNK.size + 4 * listed
    ends = np.cumsum(counts)
    where = begin + 4 * (np.arange(len(counts)) + ends - counts)
    body = np.insert(features, ends - counts, counts).astype("<u4").tobytes()
    head = _CHUNK.pack(magic, _CHUNK.size + 4 * listed + len(body), listed)
    return bytes(padding) + head + where.astype("<u4").tobytes() + bytes(4 * more) + body
