"""Data of any size to an encoded data set on disk, in two passes and bounded memory.

The first pass learns what there is, features and labels, and counts features; the second writes columns
(`storage.encoded`). Both read the data part by part, and only one part, the alphabet and the shard that is being
filled are in memory. Columns are numbered in the order of the data and labels are sorted, so a model trained on the
data set is the one that ``fit`` on all of the data in memory would give.

Numeric columns with ``standardize=True`` get the scale of the first part in which they occur.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from crfield.core.target import Target
from crfield.data.label_growth import grown_labels
from crfield.data.labels import LabelCoder
from crfield.data.large import refuse_large
from crfield.errors import InputError
from crfield.estimators.base.sequences import check_weights
from crfield.estimators.chain.early_stopping import numbered
from crfield.features.columns.select import check_min_count, row_counts
from crfield.features.detect import encoder_for
from crfield.features.encoder import Encoder
from crfield.features.growth import grow, without_rare
from crfield.features.templates.template import Template
from crfield.storage.encoded import SHARD_BYTES, DatasetWriter, EncodedDataset
from crfield.storage.exchange import template_text

Part = Sequence[Any]  # (X, y) or (X, y, weights)


def encode_dataset(
    parts: Iterable[Part] | Callable[[], Iterable[Part]],
    path: Any,
    *,
    features: Any = None,
    template: str | os.PathLike[str] | Template | None = None,
    functions: Sequence[Any] | None = None,
    transition_functions: Sequence[Any] = (),
    transition_features: str | Sequence[Any] | None = None,
    standardize: bool = False,
    min_count: int = 1,
    shard_bytes: int = SHARD_BYTES,
) -> EncodedDataset:
    """Write the parts, pairs (X, y) or triples (X, y, weights), to a new folder and open it.

    ``parts`` is read twice: a list, or a function that begins anew when it is called. The other options are those of
    `ChainCRF`; ``shard_bytes`` is about the size of one shard, of which training holds one in memory at a time.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     encode_dataset([([[["a"], ["b"]]], [["N", "V"]])], os.path.join(folder, "data")).labels.tolist()
    ['N', 'V']
    """
    if not isinstance(shard_bytes, int | np.integer) or shard_bytes < 1:
        raise InputError(f"shard_bytes must be a whole number of at least 1, got {shard_bytes!r}.")
    if getattr(features, "min_count", 1) != 1:
        raise InputError(
            "features with min_count above 1 would count the words of the first part only. Use features with "
            "min_count=1, and min_count=… of encode_dataset for rare columns."
        )
    given = template = template_text(template)
    least = max(check_min_count(min_count), 1)
    encoder: Encoder | None = None
    coder: LabelCoder | None = None
    counts, seen = [np.zeros(0, np.int64), np.zeros(0, np.int64)], 0
    for X, y, _ in _read(parts):
        if encoder is None:
            encoder = encoder_for(
                X,
                template=template,
                functions=functions,
                transition_features=transition_features,
                transition_functions=transition_functions,
                standardize=standardize,
                features=features,
            )
            batch, places = encoder.fit(X), [np.zeros(0, np.int64)] * 2
        else:
            grown = grow(encoder, X)
            encoder, batch, places = grown.encoder, grown.batch, [grown.node, grown.edge]
        with numbered(range(seen, seen + batch.topology.n_sequences)):
            refuse_large(batch, encoder)
        seen += batch.topology.n_sequences
        coder = grown_labels(coder, y)
        if least > 1:
            for side, columns in enumerate((batch.node, batch.edge)):
                if columns is not None:
                    total = row_counts(columns)
                    total[places[side]] += counts[side]
                    counts[side] = total
    if encoder is None or coder is None:
        raise InputError("there is nothing to encode: parts holds no pair (X, y).")
    if least > 1:
        encoder = without_rare(encoder, counts[0] >= least, counts[1] >= least)
    coder = LabelCoder().fit([coder.labels])
    with DatasetWriter(path, coder, shard_bytes=int(shard_bytes)) as writer:
        for X, y, weights in _read(parts):
            batch = encoder.encode(X)
            labels, allowed = coder.encode(y, batch.topology.lengths)
            weight = None if weights is None else check_weights(weights, batch.topology.n_sequences)
            writer.add(batch, Target(batch.topology, coder.n_labels, labels, allowed, weight))
        text: str | None = template.text if isinstance(template, Template) else given
        return writer.close(*encoder.state(), template=text)


def _read(parts: Any) -> Iterator[tuple[Any, Any, Any]]:
    given = parts() if callable(parts) else parts
    if iter(given) is given and not callable(parts):
        raise InputError(
            "parts is read twice, and an iterator can be read only once. Give a list of parts, or a function that "
            "makes a new iterator."
        )
    for part in given:
        if not isinstance(part, tuple | list) or len(part) not in (2, 3):
            raise InputError(f"parts must hold pairs (X, y) or triples (X, y, weights), got {type(part).__name__}.")
        yield (*part, None) if len(part) == 2 else tuple(part)
