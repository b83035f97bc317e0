"""The model of a file: whether a verb can use it, how it reads text files, and what there is to tell of it.

`crfield.load` reads more kinds of models than labellers of text files. A verb that cannot use one says so in a
sentence, with what can (`WrongVerb`, exit code 2); `inspect` shows of each kind what it has.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol

import numpy as np

import crfield
from crfield.cli.messages import WrongVerb
from crfield.cli.reading import Reads
from crfield.cli.sensors.roles import Roles
from crfield.core.estimator import ClassifierMixin
from crfield.errors import InputError, LabelError
from crfield.estimators.base.facts import is_pipeline, labels_of, last_step
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
    def report(self, X: Any, y: Any, **options: Any) -> Any: ...


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
            f"{path} was trained on {roles.words}: crfield tag, evaluate, report and stream read such; ask the rest "
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
