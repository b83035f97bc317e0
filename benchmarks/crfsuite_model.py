"""CRFsuite's model file, read to the last bit.

python-crfsuite prints weights with six digits; the file has the doubles. Its layout (all little-endian):

    header   "lCRF", size u32, "FOMC", version u32, n_features u32, n_labels u32, n_attributes u32,
             offsets u32 of: features, labels, attributes, label references, attribute references
    features "FEAT", size u32, n u32, then n × (type u32, source u32, target u32, weight f64); type 0 links an
             attribute to a label, type 1 a label to the next one
    names    "CQDB", size u32, flag u32, byte order u32, length u32 and offset u32 of the table that gives for each
             number where its record lies: number u32, length u32, bytes ending in NUL
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_FEATURE = np.dtype([("type", "<u4"), ("source", "<u4"), ("target", "<u4"), ("weight", "<f8")])
_BYTE_ORDER = 0x62445371


@dataclass(frozen=True, eq=False)
class CrfsuiteModel:
    """Names and weights of a model that CRFsuite trained."""

    labels: list[str]
    attributes: list[str]
    state: np.ndarray  # records: source is an attribute, target a label
    transition: np.ndarray  # records: source and target are labels


def read_model(path: str | Path) -> CrfsuiteModel:
    """The labels, attributes and weights in a model file."""
    data = Path(path).read_bytes()
    if len(data) < 48 or data[:4] != b"lCRF" or data[8:12] != b"FOMC":
        raise ValueError(f"{path} is not a CRFsuite model of first order.")
    n_labels, n_attributes, features, labels, attributes = struct.unpack_from("<5I", data, 20)
    if data[features : features + 4] != b"FEAT":
        raise ValueError(f"{path}: no features at byte {features}.")
    (count,) = struct.unpack_from("<I", data, features + 8)
    table = np.frombuffer(data, dtype=_FEATURE, count=count, offset=features + 12)
    return CrfsuiteModel(
        _names(data, labels, n_labels),
        _names(data, attributes, n_attributes),
        table[table["type"] == 0],
        table[table["type"] == 1],
    )


def _names(data: bytes, start: int, count: int) -> list[str]:
    magic, _, _, order, length, table = struct.unpack_from("<4s5I", data, start)
    if magic != b"CQDB" or order != _BYTE_ORDER or length < count:
        raise ValueError(f"no names at byte {start}.")
    names = []
    for place in struct.unpack_from(f"<{count}I", data, start + table):
        _, size = struct.unpack_from("<2I", data, start + place)
        at = start + place + 8
        names.append(data[at : at + size - 1].decode("utf-8"))
    return names
