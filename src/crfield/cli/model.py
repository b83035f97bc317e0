"""The model of a file: whether a verb can use it, how it reads text files, and what there is to tell of it.

`crfield.load` reads more kinds of models than labellers of text files. A verb that cannot use one says so in a
sentence, with what can (`WrongVerb`, exit code 2); `inspect` shows of each kind what it has.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from math import isfinite
from typing import Any, Protocol

import numpy as np

import crfield
from crfield.cli.messages import WrongVerb
from crfield.cli.reading import Reads
from crfield.cli.sensors.roles import Roles
from crfield.core.estimator import ClassifierMixin
from crfield.errors import InputError, LabelError
from crfield.estimators.base.fitted import fitted_of
from crfield.features.text.transformer import TextFeatures
from crfield.features.transformed import TransformedEncoder

_READS = {
    "records": "CRFsuite attributes, feature dicts or lists of feature strings",
    "matrix": "arrays, one row for each step",
    "functions": "anything that its feature functions read",
    "graph": "graphs, of crfield.Graph or of what becomes them",
}
_ASKED = {
    "predict_proba": "marginal probabilities",
    "predict_n_best": "n-best labellings",
    "predict_spans": "spans with probabilities",
    "explain": "explanations",
    "potentials": "potentials that other engines could be asked about",
}
_PIPELINES = "crfield.estimators.base.pipeline"
REPORT = {  # what training may have told
    "objective": "objective_",
    "iterations": "n_iter_",
    "evaluations": "n_evaluations_",
    "converged": "converged_",
    "stop_reason": "stop_reason_",
}


class Tagger(Protocol):
    """A model that labels the steps of sequences."""

    classes_: np.ndarray

    def predict(self, X: Any) -> list[np.ndarray]: ...
    def predict_proba(self, X: Any) -> list[np.ndarray]: ...
    def predict_n_best(self, X: Any, n: int) -> list[Any]: ...
    def predict_spans(self, X: Any) -> list[Any]: ...
    def potentials(self, X: Any) -> Any: ...
    def explain(self, x: Any, t: int, **options: Any) -> Any: ...
    def feature_importance(self, X: Any, n: int, *, by: str) -> Any: ...


def load_tagger(path: str, *asked: str, threads: int | None) -> tuple[Tagger, Reads]:
    """The model of a file that labels steps of text files, for this ``n_jobs``, and how it reads them.

    WrongVerb unless it has the methods that are ``asked`` of it.
    """
    return as_tagger(crfield.load(path), path, *asked, threads=threads)


def as_tagger(model: Any, path: str, *asked: str, threads: int | None) -> tuple[Tagger, Reads]:
    """The same of a model that is loaded already."""
    kind, last = type(model).__name__, last_step(model)
    roles = roles_of(model)
    if roles is not None:
        raise WrongVerb(
            f"{path} was trained on {roles.words}: crfield tag, evaluate and stream read such; ask the rest "
            "from Python, crfield.load(path)."
        )
    encoder, words = _part(last, "encoder"), words_of(model)
    whole = isinstance(last, ClassifierMixin)  # one label for a sequence or a row
    if encoder is None or encoder.kind == "graph" or whole or not hasattr(model, "log_prob"):
        call = "predict" if hasattr(model, "predict") else "transform"
        raise WrongVerb(
            f"{path} holds a {kind}, which does not label the steps of text files. Use it from Python: "
            f"crfield.load(path).{call}(X); crfield inspect shows what it holds."
        )
    if encoder.kind not in ("template", "records") and words is None:
        raise InputError(
            f"{path} was trained in Python on data of kind {encoder.kind!r}, which no text file holds. Use it from "
            "Python: crfield.load(path).predict(X)."
        )
    for name in asked:
        if not hasattr(model, name):
            raise WrongVerb(f"{path} holds a {kind}, which has no {_ASKED[name]}; a ChainCRF has.")
    if words is not None and words.columns is None and hasattr(words, "n_columns_"):
        words.columns = words.column_numbers  # those of rows as wide as in training, which labels may follow
        if isinstance(encoder, TransformedEncoder):
            encoder.transformer.columns = words.columns
    if "n_jobs" in last.get_params(deep=False):
        last.set_params(n_jobs=threads)
    return model, reads_of(model)


def _part(model: Any, name: str) -> Any:
    return getattr(fitted_of(model), name, None)


def is_pipeline(model: Any) -> bool:
    """Whether it is a `crfield.Pipeline`, without an import of its module and of scikit-learn to say no."""
    return _PIPELINES in sys.modules and isinstance(model, crfield.Pipeline)


def last_step(model: Any) -> Any:
    """The model itself, of a pipeline its last step."""
    return model[-1] if is_pipeline(model) else model


def roles_of(model: Any) -> Roles | None:
    """How a model reads tables; None where it was not trained on one."""
    return Roles.of_source(getattr(last_step(model), "source_", {}))


def words_of(model: Any) -> TextFeatures | None:
    """The text features of a model, or before it in a pipeline, if it has any."""
    steps = [step for _, step in model.steps[:-1]] if is_pipeline(model) else []
    found = [*steps, getattr(model, "features", None), getattr(_part(model, "encoder"), "transformer", None)]
    return next((each for each in found if isinstance(each, TextFeatures)), None)


def reads_of(model: Any) -> Reads:
    """How a trained model reads text files."""
    words, last = words_of(model), last_step(model)
    options = {"template": getattr(last, "template", None), "features": words}
    encoder = _part(last, "encoder") if last is model else None
    return Reads.by(options, getattr(last, "source_", {}), encoder)


def label_of(model: Any, text: str | None) -> Hashable | None:
    """The label that reads as the text; labels of a model made in Python need not be strings."""
    labels = [label for own in labels_of(model).values() for label in own]
    if text is None:
        return None
    for label in labels:
        if str(label) == text:
            return label
    known = ", ".join(map(str, labels[:20]))
    raise LabelError(f"the model has no label {text!r}; it has {known}{', …' if len(labels) > 20 else ''}.")


def labels_of(model: Any) -> dict[str, list[Any]]:
    """The labels of a model by the kind or layer of nodes that have them; of most there is one, without a name."""
    found = getattr(model, "classes_", {})
    return {str(kind): list(own) for kind, own in found.items()} if isinstance(found, dict) else {"": found.tolist()}


def model_facts(model: Any) -> dict[str, Any]:
    """Sizes and the report of training, as far as the model has them, ready for JSON."""
    facts: dict[str, Any] = {"labels": sum(map(len, labels_of(model).values()))}
    layout, weights = _part(last_step(model), "layout"), getattr(model, "coef_", None)
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


def model_lines(model: Any) -> dict[str, str]:
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


def what_it_reads(model: Any) -> str:
    """Which data the model is for."""
    roles = roles_of(model)
    if roles is not None:
        return roles.words
    encoder, reads, words = _part(last_step(model), "encoder"), reads_of(model), words_of(model)
    of = f"CoNLL-U {reads.source.get('columns')}, labels {reads.source.get('label')}" if reads.source else None
    if words is not None:
        listed = ", ".join(f"{number} {name}" for name, number in words.column_numbers.items())
        return f"words, by text features ({of or f'columns {listed}'})"
    if reads.columns is not None:
        return f"token columns by a template ({of or 'columns ' + ', '.join(map(str, reads.columns.columns))})"
    return "" if encoder is None else _READS.get(encoder.kind, encoder.kind)
