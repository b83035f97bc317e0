"""What a trained model is, as facts that `train` and `inspect` show alike."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np

from crfield.cli.reading import template_of, words_of

_READS = {
    "records": "CRFsuite attributes, feature dicts or lists of feature strings",
    "matrix": "arrays, one row for each step",
    "functions": "anything that its feature functions read",
}


def model_facts(model: Any) -> dict[str, Any]:
    """Sizes and the report of training, ready for JSON."""
    layout = model._fitted.layout
    return {
        "labels": len(model.classes_),
        "columns": layout.n_columns + layout.n_dense,
        "edge_columns": layout.n_edge_columns + layout.n_edge_dense,
        "weights": len(model.coef_),
        "nonzero_weights": int(np.count_nonzero(model.coef_)),
        "objective": model.objective_ if isfinite(model.objective_) else None,  # a model trained elsewhere has none
        "iterations": model.n_iter_,
        "evaluations": model.n_evaluations_,
        "converged": model.converged_,
        "stop_reason": model.stop_reason_,
    }


def model_lines(model: Any) -> dict[str, str]:
    """The same for people."""
    facts = model_facts(model)
    features = f"{facts['columns']:,}"
    if facts["edge_columns"]:
        features += f", and {facts['edge_columns']:,} of label pairs"
    weights = f"{facts['weights']:,}"
    if facts["nonzero_weights"] < facts["weights"]:
        weights += f", {facts['nonzero_weights']:,} of them not zero"
    end = "converged" if facts["converged"] else f"not converged: {facts['stop_reason']}"
    return {
        "labels": f"{facts['labels']:,}",
        "features": features,
        "weights": weights,
        "objective": "unknown" if facts["objective"] is None else f"{facts['objective']:,.4f}",
        "training": facts["stop_reason"]
        if facts["objective"] is None
        else f"{facts['iterations']:,} steps, {facts['evaluations']:,} evaluations, {end}",
    }


def what_it_reads(model: Any) -> str:
    """Which data the model is for."""
    kind = model._fitted.encoder.kind
    words = words_of(model)
    source = getattr(model, "source_", {})
    of = f"CoNLL-U {source.get('columns')}, labels {source.get('label')}" if source else None
    if words is not None:
        listed = ", ".join(f"{number} {name}" for name, number in words.column_numbers.items())
        return f"words, by text features ({of or f'columns {listed}'})"
    if model.template is None:
        return _READS.get(kind, kind)
    if of is not None:
        return f"token columns by a template ({of})"
    columns = template_of(model).columns
    return f"token columns by a template (columns {', '.join(map(str, columns))})"
