"""What there is to tell of a fitted model, whichever it is: labels, sizes, and how training went.

Every estimator has its own attributes; those that many share are looked for here by name, once for the command line,
for notebooks and for reports. What a model does not have is left out.
"""

from __future__ import annotations

import sys
from math import isfinite
from typing import Any, cast

import numpy as np

_PIPELINES = "sklearn.pipeline"
REPORT = {  # what training may have told
    "objective": "objective_",
    "iterations": "n_iter_",
    "evaluations": "n_evaluations_",
    "converged": "converged_",
    "stop_reason": "stop_reason_",
}


def is_pipeline(model: object) -> bool:
    """Whether it is a pipeline, without an import of scikit-learn to say no."""
    return _PIPELINES in sys.modules and isinstance(model, sys.modules[_PIPELINES].Pipeline)


def last_step(model: object) -> Any:
    """The model itself, of a pipeline its last step."""
    return cast(Any, model)[-1] if is_pipeline(model) else model


def answering(model: object) -> Any:
    """The model itself, of a search among models the one that it has chosen and that answers for it."""
    return getattr(model, "best_estimator_", model)


def labels_of(model: object) -> dict[str, list[Any]]:
    """The labels of a model by the kind or layer of nodes that have them; of most there is one, without a name."""
    found = getattr(model, "classes_", {})
    return {str(kind): list(own) for kind, own in found.items()} if isinstance(found, dict) else {"": found.tolist()}


def model_facts(model: object) -> dict[str, Any]:
    """Sizes and the report of training, as far as the model has them, ready for JSON."""
    facts: dict[str, Any] = {"labels": sum(map(len, labels_of(model).values()))}
    layout: Any = getattr(getattr(last_step(model), "_fitted", None), "layout", None)
    weights = getattr(model, "coef_", None)
    if hasattr(layout, "n_edge_columns"):
        facts["columns"] = layout.n_columns + layout.n_dense
        facts["edge_columns"] = layout.n_edge_columns + layout.n_edge_dense
    if weights is not None:
        facts |= {"weights": weights.size, "nonzero_weights": int(np.count_nonzero(weights))}
    for name, attribute in REPORT.items():
        value = getattr(model, attribute, None)
        unknown = isinstance(value, float) and not isfinite(value)  # of a model trained elsewhere, or by counting
        if value is not None:
            facts[name] = None if unknown else value
    return facts


def model_lines(model: object) -> dict[str, str]:
    """The same for people."""
    facts, lines = model_facts(model), {}
    if facts["labels"]:
        lines["labels"] = f"{facts['labels']:,}"
    if "columns" in facts:
        pairs = f", and {facts['edge_columns']:,} of label pairs" if facts["edge_columns"] else ""
        lines["features"] = f"{facts['columns']:,}{pairs}"
    if "weights" in facts:
        some = facts["nonzero_weights"] < facts["weights"]
        lines["weights"] = f"{facts['weights']:,}"
        lines["weights"] += f", {facts['nonzero_weights']:,} of them not zero" if some else ""
    if "objective" in facts:
        lines["objective"] = "unknown" if facts["objective"] is None else f"{facts['objective']:,.4f}"
    if facts.get("objective", 0.0) is None and "stop_reason" in facts:
        lines["training"] = facts["stop_reason"]
        return lines
    words = (("iterations", "steps"), ("evaluations", "evaluations"))
    counts = [f"{facts[name]:,} {word}" for name, word in words if name in facts]
    if "converged" in facts:
        reason = f": {facts['stop_reason']}" if "stop_reason" in facts else ""
        counts.append("converged" if facts["converged"] else f"not converged{reason}")
    if counts:
        lines["training"] = ", ".join(counts)
    return lines
