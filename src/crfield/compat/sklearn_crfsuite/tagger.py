"""The part of python-crfsuite's tagger and training log that users of sklearn-crfsuite reach for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from crfield.compat.crfsuite_model import attribute_weights
from crfield.compat.sklearn_crfsuite.items import asked, listed
from crfield.errors import InputError, LabelError
from crfield.estimators.chain.crf import ChainCRF


@dataclass(frozen=True)
class ModelInfo:
    """What python-crfsuite's ``tagger.info()`` tells, at full precision."""

    labels: dict[str, str]
    attributes: dict[str, str]
    state_features: dict[tuple[str, Any], float]
    transitions: dict[tuple[Any, Any], float]
    header: dict[str, str] = field(default_factory=dict)


def model_info(chain: ChainCRF, labels: Sequence[Any]) -> ModelInfo:
    """Names and weights of a model; weights of 0, and attributes with no other, are left out as CRFsuite does.

    >>> chain = ChainCRF(intercept=False, boundaries=False).fit([[{"w": "a"}, {"w": "b"}]], [["N", "V"]])
    >>> info = model_info(chain, ["N", "V"])
    >>> list(info.state_features), list(info.transitions), info.attributes
    ([('w:a', 'N'), ('w:b', 'V')], [('N', 'V')], {'w:a': '0', 'w:b': '1'})
    """
    names, attribute, label, weight = attribute_weights(chain)
    classes = chain.classes_.tolist()
    state = {(names[a], classes[k]): w for a, k, w in zip(attribute.tolist(), label.tolist(), weight.tolist())}
    used = dict.fromkeys(name for name, _ in state)
    pairs = {pair: w for pair, w in chain.transitions_.to_dict().items() if w}
    counts = {"num_labels": str(len(classes)), "num_attrs": str(len(used))}
    return ModelInfo(
        {str(name): str(k) for k, name in enumerate(labels)},
        {name: str(k) for k, name in enumerate(used)},
        state,
        pairs,
        counts,
    )


def by_occurrence(y: Any, classes: Sequence[Any]) -> list[Any]:
    """The classes in the order in which they first occur in y, as CRFsuite numbers them.

    >>> by_occurrence([["V", None], ["N", "V", {"A", "N"}]], ["A", "N", "V"])
    ['V', 'N', 'A']
    """
    known = {label: label for label in classes}
    met = (label for labels in y for label in labels if not isinstance(label, set | frozenset))
    order = dict.fromkeys(known[label] for label in met if label in known)
    return [*order, *(label for label in classes if label not in order)]


class Tagger:
    """One sequence at a time, in the manner of ``pycrfsuite.Tagger``.

    >>> chain = ChainCRF(intercept=False, boundaries=False).fit([[{"w": "a"}, {"w": "b"}]], [["N", "V"]])
    >>> tagger = Tagger(chain, ["N", "V"])
    >>> tagger.tag([{"w": "b"}]), tagger.probability(["V"]) == tagger.marginal("V", 0)
    (['V'], True)
    """

    def __init__(self, chain: ChainCRF, labels: Sequence[Any]) -> None:
        self._chain, self._labels = chain, list(labels)
        self._sequence: Any = None
        self._marginals: list[dict[Any, float]] | None = None

    def labels(self) -> list[Any]:
        """The labels, in the order of the model."""
        return list(self._labels)

    def set(self, xseq: Any) -> None:
        """The sequence that the following questions are about."""
        self._sequence, self._marginals = listed([xseq])[0], None

    def tag(self, xseq: Any = None) -> list[Any]:
        """Its best labelling."""
        return asked(self._chain.predict, [self._chosen(xseq)])[0].tolist()

    def marginal(self, y: Any, pos: int) -> float:
        """Probability of a label at a step."""
        sequence = self._chosen(None)
        if self._marginals is None:
            self._marginals = asked(self._chain.predict_marginals, [sequence])[0]
        if y not in self._labels:
            raise LabelError(f"the model has no label {y!r}; it has {self._labels[:20]}.")
        if not 0 <= pos < len(self._marginals):
            raise InputError(f"pos must be a step of the sequence, 0 … {len(self._marginals) - 1}, got {pos!r}.")
        return self._marginals[pos][y]

    def probability(self, yseq: Sequence[Any]) -> float:
        """Probability of a labelling as a whole."""
        from math import exp

        return exp(asked(lambda X: self._chain.log_prob(X, [list(yseq)]), [self._chosen(None)])[0])

    def info(self) -> ModelInfo:
        """Names and weights."""
        return model_info(self._chain, self._labels)

    def close(self) -> None:
        """There is nothing to close."""

    def _chosen(self, xseq: Any) -> Any:
        if xseq is not None:
            self.set(xseq)
        if self._sequence is None:
            raise InputError("the tagger has no sequence yet. Call set(xseq), or tag(xseq).")
        return self._sequence


@dataclass
class TrainingLog:
    """``training_log_``: a dict for each step, as python-crfsuite's parser of CRFsuite's log gives them.

    Of held-out data (``X_dev``, ``y_dev``) the last step has the scores.
    """

    iterations: list[dict[str, Any]]

    @property
    def last_iteration(self) -> dict[str, Any]:
        """The last step."""
        return self.iterations[-1] if self.iterations else {}


def training_log(chain: ChainCRF) -> TrainingLog:
    """The log of a fitted model."""
    norm = float((chain.coef_**2).sum() ** 0.5)
    rows: list[dict[str, Any]] = []
    before = 0.0
    for step in chain.history_:
        rows.append(
            {
                "num": step.n_iter,
                "loss": step.value,
                "error_norm": step.gradient_norm,
                "active_features": step.n_active,
                "linesearch_step": step.step_size,
                "time": step.seconds - before,
                "scores": {},
            }
        )
        before = step.seconds
    if rows:
        rows[-1]["feature_norm"] = norm
    return TrainingLog(rows)
