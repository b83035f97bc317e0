"""All that a chain model has learnt, by name, as one value that JSON can hold.

For programs in other languages, and for people who want to read a model: labels, the template if there is one, and
every weight that is not 0 with the names of what it belongs to. It is for reading only; models that are to come back
are saved.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.explain.weights import strongest_features
from crfield.features.templates.encoder import TemplateEncoder


def chain_listing(model: ChainCRF) -> dict[str, Any]:
    """Labels, weights of label pairs, intercepts and features, the strongest first.

    >>> model = ChainCRF(boundaries=False).fit([[{"w": "a"}, {"w": "b"}]], [["N", "V"]])
    >>> listing = chain_listing(model)
    >>> listing["labels"], [feature["name"] for feature in listing["features"]]
    (['N', 'V'], ['w=a', 'w=b', '(bias)', '(bias)'])
    """
    inner = model.column_model("a listing")
    coder = inner.labels
    labels = [_name(label) for label in coder.labels]
    pairs = model.transitions_.to_dict()
    features = strongest_features(inner, coder, int(np.count_nonzero(inner.weights)), None)
    return {
        "kind": type(model).__name__,
        "encoder": inner.encoder.kind,
        "template": inner.encoder.template.text if isinstance(inner.encoder, TemplateEncoder) else None,
        "labels": labels,
        "transitions": [
            {"before": _name(before), "label": _name(after), "weight": weight}
            for (before, after), weight in pairs.items()
            if weight
        ],
        **_more(model),
        "features": [{"name": name, **_labels(label), "weight": weight} for name, label, weight in features],
    }


def _more(model: ChainCRF) -> dict[str, Any]:
    """Pairs that rules forbid, and weights of longer runs of labels, where there are any."""
    inner = model.column_model("a listing")
    labels = [_name(label) for label in inner.labels.labels]
    more: dict[str, Any] = {}
    if inner.layout.fixed is not None:
        more["forbidden"] = [[labels[i], labels[j]] for i, j in np.argwhere(np.isneginf(inner.layout.fixed.edge))]
    if inner.higher_order:
        runs = [run for table in inner.layout.runs.runs for run in table.tolist()]  # type: ignore[attr-defined]
        weights = inner.weights[inner.layout.part["runs"]].tolist()
        more["runs"] = [{"labels": [labels[k] for k in run], "weight": w} for run, w in zip(runs, weights) if w]
    return more


def _labels(label: Any) -> dict[str, Any]:
    if hasattr(label, "before"):
        return {"before": _name(label.before), "label": _name(label.after)}
    return {"label": _name(label)}


def _name(label: Any) -> Any:
    return label if isinstance(label, str | int | float | bool) else str(label)
