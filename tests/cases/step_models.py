"""Small fitted models of every kind of scores that a stream or an exported program has."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from crfield import (
    HMM,
    MEMM,
    BoostedRandomField,
    ChainCRF,
    ClassifierHMM,
    FactorialCRF,
    GraphCRF,
    LatentDynamicCRF,
    LogitBoost,
    MaxentClassifier,
    TreeCRF,
    VirtualEvidenceBoosting,
    chain,
)

Rows = list[np.ndarray]


@dataclass(frozen=True)
class StepModel:
    """A model, how rows are written for `predict` and for `push`, and whether a column may be missing."""

    name: str
    model: Any
    whole: Callable[[np.ndarray], Any] = np.asarray  # a sequence (T, D) as predict reads it
    step: Callable[[np.ndarray], Any] = np.asarray  # a row (D,) as push reads it
    whole_numbers: bool = False
    missing: bool = False


def series(seed: int, n: int = 3, *, whole_numbers: bool = False) -> tuple[Rows, Rows]:
    """Sequences of four columns and three labels that last."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        states = np.repeat(rng.integers(3, size=9), rng.integers(3, 8, size=9))
        x = rng.normal(size=(len(states), 4)) * 1.5 + states[:, None] * np.arange(4)
        X.append(np.clip(np.round(x), 0, 4) if whole_numbers else x)
        y.append(states)
    return X, y


def by_layer(x: np.ndarray) -> dict[str, np.ndarray]:
    return {"motion": x[..., :1], "place": x[..., 1:]}


def layered(y: Rows) -> Rows:
    return [np.stack([labels, (labels > 0) * 1], axis=1) for labels in y]


LIMITS: dict[str, Any] = {"tol": 1e-2}
FORMS = [
    StepModel("boosted", VirtualEvidenceBoosting(n_rounds=12), missing=True),
    StepModel(
        "boosted_two",
        VirtualEvidenceBoosting(n_rounds=12, relations=(1, 2), learner="tree", discrete=[1, 2]),
        whole_numbers=True,
        missing=True,
    ),
    StepModel("beliefs", BoostedRandomField(n_rounds=4, relations=(1, 2)), missing=True),
    StepModel("believing_stumps", BoostedRandomField(n_rounds=5, learner="stump", directed=True), missing=True),
    StepModel("trees", TreeCRF(n_rounds=6), missing=True),
    StepModel("edge_trees", TreeCRF(n_rounds=6, transitions="trees"), missing=True),
    StepModel("normal", HMM(decode="viterbi"), missing=True),
    StepModel("covariances", HMM("full", decode="viterbi"), missing=True),
    StepModel("mixtures", HMM("mixture", decode="viterbi"), missing=True),
    StepModel("symbols", HMM("categorical", decode="viterbi"), whole_numbers=True, missing=True),
    StepModel("lasting", HMM(min_duration=2, decode="viterbi"), missing=True),
    StepModel("stumps", ClassifierHMM(LogitBoost(n_rounds=9), standardize=True, emission_weight=0.7), missing=True),
    StepModel("logistic", ClassifierHMM(LogisticRegression(), standardize=True)),
    StepModel("maxent", ClassifierHMM(MaxentClassifier())),
    StepModel("local", MEMM(transition_features=[0], **LIMITS)),
    StepModel("latent", LatentDynamicCRF(n_states=2, decode="viterbi", n_init=1, max_iter=10, **LIMITS)),
    StepModel("runs", ChainCRF(order=2, **LIMITS)),
    StepModel("layers", FactorialCRF(decode="map", **LIMITS)),
    StepModel(
        "far_layers",
        FactorialCRF(decode="map", layers=("motion", "place"), distances=(1, 2), standardize=True, **LIMITS),
        whole=by_layer,
        step=by_layer,
    ),
    StepModel(
        "graphs",
        GraphCRF(decode="map", relations={"+2": "potts"}, **LIMITS),
        whole=lambda x: chain(x, distances=(1, 2)),
    ),
]


@cache
def fitted(form: StepModel) -> Any:
    """The model, fitted once for all tests."""
    X, y = series(0, whole_numbers=form.whole_numbers)
    labels: Any = layered(y) if isinstance(form.model, FactorialCRF) else y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few steps and loose tolerances
        return form.model.fit([form.whole(x) for x in X], labels)


def answers(model: Any, x: Any) -> tuple[np.ndarray, list[Any]]:
    """Probabilities of the last step and the best labelling, of tuples of labels where there are layers."""
    labels, shares = model.predict([x])[0], model.predict_proba([x])[0]
    if not isinstance(model, FactorialCRF):
        return shares[-1], labels.tolist()
    return shares, [tuple(row) for row in labels.tolist()]
