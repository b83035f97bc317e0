"""Encoders that were fitted to parts of the data, put together: what learning the columns in many places needs.

`merged` gives the encoder that would have come of growing the first one by the data of the second
(`crfield.features.growth`): columns of the first keep their numbers, those that only the second has follow in its
order. So parts that are learnt at the same time and merged in their order have the columns of one pass over all of
them. `Merged` also says where the columns of the second are, so that counts can follow.

Names of columns are compared as they are stored, so this is for templates, for records without vectors, and for
transformers in front of such records that learn nothing from the data, as `TextFeatures` without ``min_count``.

Cost: sorting or hashing the columns of both.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from crfield.data.alphabet import Alphabet
from crfield.errors import InputError
from crfield.features.encoder import Encoder
from crfield.features.records import RecordEncoder
from crfield.features.templates.encoder import TemplateEncoder, _Side
from crfield.features.transformed import TransformedEncoder
from crfield.kernels.records import RecordTable


@dataclass(frozen=True, eq=False)
class Merged:
    """An encoder that knows what two knew, and where the columns of the second are in it."""

    encoder: Encoder
    node: np.ndarray  # (K,) of the second
    edge: np.ndarray


def merged(encoder: Encoder, other: Encoder) -> Merged:
    """The columns of both; see the module.

    >>> one, two = RecordEncoder(), RecordEncoder()
    >>> _ = one.fit([[["sun"], ["rain"]]]), two.fit([[["snow"], ["rain"]]])
    >>> found = merged(one, two)
    >>> [found.encoder.node_name(k) for k in range(3)], found.node.tolist()
    (['sun', 'rain', 'snow'], [2, 1])
    """
    if isinstance(encoder, TransformedEncoder) and isinstance(other, TransformedEncoder):
        found = merged(encoder.inner, other.inner)
        return replace(found, encoder=encoder.with_inner(found.encoder))
    if isinstance(encoder, TemplateEncoder) and isinstance(other, TemplateEncoder):
        return _merged_templates(encoder, other)
    plain = isinstance(encoder, RecordEncoder) and isinstance(other, RecordEncoder)
    if plain and not (encoder.standardize or encoder.transition_features is not None):  # type: ignore[attr-defined]
        return _merged_records(encoder, other)  # type: ignore[arg-type]
    raise InputError(
        f"columns of {type(encoder).__name__} cannot be learnt in several places at once (scales, vectors and "
        "transition features belong to one pass). Encode without a cluster."
    )


def _merged_records(encoder: RecordEncoder, other: RecordEncoder) -> Merged:
    mine, theirs = encoder.table.to_arrays(), other.table.to_arrays()
    if encoder.table.n_dense or other.table.n_dense:
        raise InputError("vectors in records cannot be learnt in several places at once. Encode without a cluster.")
    keys = [_keys(arrays["pool"], arrays["offsets"]) for arrays in (mine, theirs)]
    known = {key: place for place, key in enumerate(keys[0])}
    node = np.array([known.setdefault(key, len(known)) for key in keys[1]], dtype=np.int64)
    table = list(known)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(key) for key in table], dtype=np.int64)])
    made = copy.copy(encoder)
    made._table = RecordTable.from_arrays({**mine, "pool": np.frombuffer(b"".join(table), np.uint8), "offsets": ends})
    return Merged(made, node, np.zeros(0, np.int64))


def _keys(pool: np.ndarray, offsets: np.ndarray) -> list[bytes]:
    text, ends = pool.tobytes(), offsets.tolist()
    return [text[a:b] for a, b in pairwise(ends)]


def _merged_templates(encoder: TemplateEncoder, other: TemplateEncoder) -> Merged:
    known, *mine = encoder._fitted()
    theirs_alphabet, *theirs = other._fitted()
    alphabet = Alphabet.from_arrays(*known.to_arrays())
    number = alphabet.encode(list(theirs_alphabet), add=True)
    alphabet.lock()
    made, sides, places = copy.copy(encoder), list[_Side](), list[np.ndarray]()
    for own, foreign in zip(mine, theirs):
        skeleton = np.concatenate([own.skeleton, foreign.skeleton])
        codes = np.concatenate([own.codes, number[foreign.codes] if len(foreign.codes) else foreign.codes])
        holes = np.concatenate([np.diff(own.starts), np.diff(foreign.starts)])
        first, place = _first_of_each(skeleton, codes, holes)
        sides.append(made._restored(own.patterns, alphabet, skeleton[first], codes[np.repeat(first, holes)]))
        places.append(place[own.width :])
    made._alphabet, (made._node, made._edge) = alphabet, sides
    return Merged(made, *places)


def _first_of_each(skeleton: np.ndarray, codes: np.ndarray, holes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(K,) whether a column is the first of its kind, and the number that each has when the others are left out."""
    wide = int(holes.max(initial=0))
    table = np.full((len(skeleton), wide + 1), -1, np.int32)
    table[:, 0] = skeleton
    row = np.repeat(np.arange(len(skeleton)), holes)
    table[row, 1 + np.arange(len(codes)) - np.repeat(np.cumsum(holes) - holes, holes)] = codes
    _, at, kind = np.unique(table, axis=0, return_index=True, return_inverse=True)
    first = np.zeros(len(skeleton), bool)
    first[at] = True
    return first, (np.cumsum(first) - 1)[at[kind.ravel()]]
