"""A `ChainCRF` as a model of CRFsuite, where that is the same model.

CRFsuite knows weights of (attribute, label) and of pairs of labels, and nothing else. A model of ours that has more
(intercepts, boundary scores, features of transitions, vectors, standardised columns, rules, longer runs) would be
another model there, so it is refused with a hint at what to train without. Intercepts and boundary scores can be
carried by attributes, if the data that CRFsuite will tag have these: one on every step, one on the first, one on the
last. Names of dict features are joined as python-crfsuite joins them, ``word:dog``, so the same dicts mean the same.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from crfield.errors import InputError
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.chain.memm import MEMM
from crfield.estimators.chain.model import ColumnModel
from crfield.features.records import SEPARATOR, RecordEncoder
from crfield.features.templates.encoder import TemplateEncoder
from crfield.features.transformed import TransformedEncoder
from crfield.storage.foreign.crfsuite import CrfsuiteModel


def to_crfsuite(
    model: ChainCRF, *, bias: str | None = None, start: str | None = None, end: str | None = None
) -> CrfsuiteModel:
    """The same model for CRFsuite; InputError where there is none.

    ``bias``, ``start`` and ``end`` name the attributes that will carry intercepts and boundary scores.

    >>> model = ChainCRF(intercept=False, boundaries=False).fit([[{"w": "a"}, {"w": "b"}]], [["N", "V"]])
    >>> to_crfsuite(model).attributes()
    ['w:a', 'w:b']
    """
    names, column, label_of, weight = attribute_weights(model)
    layout, weights = model.column_model("CRFsuite").layout, model.coef_
    labels = model._coder.labels
    for label in labels:
        if not isinstance(label, str) or not label or "\0" in label:
            raise InputError(f"CRFsuite's labels are strings of one or more characters, this model has {label!r}.")
    attribute, label_code, values = [column], [label_of], [weight]
    for part, name, option in (
        ("bias", bias, "intercept"),
        ("start", start, "boundaries"),
        ("end", end, "boundaries"),
    ):
        scores = weights[layout.part[part]]
        if not scores.any():
            continue
        if name is None:
            raise InputError(
                f"the model has {part} scores, which CRFsuite does not. Train with {option}=False, or pass "
                f"{part}='…', the name of an attribute that the data have on "
                f"{'every' if part == 'bias' else 'the first' if part == 'start' else 'the last'} step."
            )
        attribute.append(np.full(len(labels), len(names)))
        label_code.append(np.arange(len(labels)))
        values.append(scores)
        names.append(name)
    joined = [name.encode("utf-8", "surrogatepass") for name in names]
    if len(set(joined)) < len(joined):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"two features would both be called {twice!r} in CRFsuite. Rename one, and train again.")
    order = np.lexsort((np.concatenate(label_code), np.concatenate(attribute)))
    return CrfsuiteModel(
        tuple(labels),  # type: ignore[arg-type]
        np.frombuffer(b"".join(joined), np.uint8),
        np.concatenate([np.zeros(1, np.int64), np.cumsum([len(name) for name in joined], dtype=np.int64)]),
        np.concatenate(attribute)[order].astype(np.int64),
        np.concatenate(label_code)[order].astype(np.int64),
        np.concatenate(values)[order],
        layout.pairs.astype(np.int64),
        weights[layout.part["transitions"]],
    )


def attribute_weights(model: ChainCRF) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
    """Names of all attributes, and attribute, label and value of each weight of them that is not 0.

    >>> model = ChainCRF(intercept=False).fit([[{"w": "a"}, {"w": "b"}]], [["N", "V"]])
    >>> names, attribute, label, weight = attribute_weights(model)
    >>> names, attribute.tolist(), label.tolist()
    (['w:a', 'w:b'], [0, 1], [0, 1])
    """
    inner = model._fitted
    if not isinstance(inner, ColumnModel):
        _refuse("functions of two labels")
    if isinstance(model, MEMM):
        _refuse("a normaliser for each step (MEMM)")
    layout = inner.layout
    if inner.higher_order:
        _refuse("an order above 1")
    if layout.n_dense or layout.n_edge_columns or layout.n_edge_dense:
        _refuse("vectors, or features of transitions")
    if getattr(layout, "fixed", None) is not None:
        _refuse("fixed scores, as constraints make them")
    names = _attribute_names(inner.encoder, layout.n_columns)
    column, label = layout.node_features()
    weight = inner.weights[layout.part["node"]]
    kept = weight != 0
    return names, column[kept], label[kept], weight[kept]


def _attribute_names(encoder: Any, n_columns: int) -> list[str]:
    if isinstance(encoder, TransformedEncoder):
        encoder = encoder.inner  # CRFsuite then reads the names that the features give
    if isinstance(encoder, RecordEncoder):
        if encoder.standardize:
            _refuse("standardised columns (standardize=True)")
        return [name if value is None else name + SEPARATOR + value for name, value in encoder.table.all_parts()]
    if isinstance(encoder, TemplateEncoder):
        return [encoder.node_name(column) for column in range(n_columns)]
    _refuse(f"data of kind {encoder.kind!r}, not named features")


def _refuse(what: str) -> NoReturn:
    raise InputError(
        f"the model has {what}, which a CRFsuite model cannot hold. Save it in crfield's format, or train without."
    )
