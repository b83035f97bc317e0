"""`ChainCRF(order=2)` and up: where a chain of higher order differs from a plain one.

The layout says it (`crfield.scoring.higher_order.RunLayout`): behind the weights of the plain chain stand those of
the runs of labels that occur. Answers about labels are sums over states; ``potentials`` are those of states.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np

from crfield.core.checks import resolve_jobs
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch
from crfield.errors import InputError
from crfield.estimators.chain.constraints import forbidden_pairs, refuse_impossible
from crfield.estimators.chain.model import ColumnModel
from crfield.inference.decode import best_marginals, check_decoder, legal_marginals
from crfield.scoring.higher_order import LabelRuns, RunLayout, RunScores
from crfield.training.chain.higher_order import RunParts, check_run_plan
from crfield.training.chain.plan import ChainParts, plan_chain


def check_order(parameters: Mapping[str, Any]) -> None:
    """InputError unless ``order`` is a whole number of at least 1 that goes with the other parameters.

    >>> check_order({"order": 0})
    Traceback (most recent call last):
    crfield.errors.InputError: order must be a whole number of at least 1, how many labels are looked back at, got 0.
    """
    order = parameters.get("order", 1)
    if isinstance(order, bool) or not isinstance(order, Integral) or order < 1:
        raise InputError(
            f"order must be a whole number of at least 1, how many labels are looked back at, got {order!r}."
        )
    if order == 1:
        return
    if parameters.get("label_functions") is not None:
        raise InputError("order above 1 is for models of columns, not for functions of two labels.")
    costs = any(parameters.get(name) is not None for name in ("class_weight", "costs"))
    check_run_plan(plan_chain(parameters["objective"], parameters["solver"], costs=costs))


def is_longer(model: Any) -> bool:
    """Whether a fitted model is of an order above 1."""
    return isinstance(model, ColumnModel) and isinstance(model.layout, RunLayout)


def label_of_state(model: Any) -> np.ndarray | None:
    """(S,) the last label of each run that a model of higher order has for a state; None for other models."""
    return model.layout.runs.label if is_longer(model) else None


def plain_part(model: Any) -> Any:
    """The model without the weights of longer runs, as what is grown by new features; others as they are."""
    if not is_longer(model):
        return model
    plain = model.layout.plain
    return ColumnModel(model.encoder, plain, model.weights[: plain.n_weights])


def with_runs(model: ColumnModel, target: Target, order: int, before: Any = None) -> ColumnModel:
    """The model with weights for the runs of labels of the target, and for those of a model before it."""
    if order == 1:
        return model
    runs = LabelRuns.observe(target, order)
    weights = np.zeros(runs.n_weights)
    if is_longer(before):
        runs, weights = _joined(before.layout.runs, before.weights[before.layout.part["runs"]], runs)
    layout = RunLayout.extend(model.layout, runs)
    return ColumnModel(model.encoder, layout, np.concatenate([model.weights, weights]))


def _joined(old: LabelRuns, weights: np.ndarray, new: LabelRuns) -> tuple[LabelRuns, np.ndarray]:
    """All runs of both, with the weights of the old ones."""
    kept = {tuple(run): w for run, w in zip((r for runs in old.runs for r in runs.tolist()), weights.tolist())}
    both = []
    for k in range(max(len(old.runs), len(new.runs))):
        found = {tuple(run) for part in (old, new) if k < len(part.runs) for run in part.runs[k].tolist()}
        both.append(np.array(sorted(found), np.int32).reshape(len(found), k + 3))
    runs = LabelRuns(new.n_labels, tuple(both))
    return runs, np.array([kept.get(tuple(run), 0.0) for part in runs.runs for run in part.tolist()])


def parts_of(model: ColumnModel, batch: Batch, target: Target, *, n_jobs: int) -> Any:
    """What a plan is carried out on."""
    if isinstance(model.layout, RunLayout):
        return RunParts(model.layout, batch, target, n_jobs)
    return ChainParts.columns(model.layout, batch, target, n_jobs=n_jobs)


class LongerAnswers:
    """Labels, probabilities and likelihoods of a fitted model of higher order."""

    def __init__(self, estimator: Any, X: Any) -> None:
        self._model, self._coder = estimator._fitted, estimator._coder
        self._n_jobs = resolve_jobs(estimator.n_jobs)
        self._decode = check_decoder(estimator.decode)
        self.scores: RunScores = self._model.run_scores(X, n_jobs=self._n_jobs)

    @property
    def topology(self) -> Chains:
        """The chains of X."""
        return self.scores.topology

    def _masked(self, known: Any) -> np.ndarray:
        if known is None:
            return self.scores.node
        return np.where(self._target(known).mask, self.scores.node, -np.inf)

    def _target(self, y: Any) -> Target:
        labels, allowed = self._coder.encode(y, self.topology.lengths)
        return Target(self.topology, self._coder.n_labels, labels, allowed)

    def beliefs(self, known: Any = None) -> np.ndarray:
        """(N, L) probabilities of labels, given what is known."""
        total, node, _ = self.scores.beliefs(self._masked(known), n_jobs=self._n_jobs)
        refuse_impossible(total, known=known is not None)
        return node

    def codes(self, known: Any = None) -> np.ndarray:
        """(N,) labels as ``decode`` asks for them."""
        if self._decode == "marginal":
            node, forbidden = self.beliefs(known), forbidden_pairs(self._model)
            if forbidden is None:
                return best_marginals(node)
            return legal_marginals(node, forbidden, self.topology, n_jobs=self._n_jobs)
        total, path = self.scores.best(self._masked(known), n_jobs=self._n_jobs)
        refuse_impossible(total, known=known is not None)
        return path

    def log_prob(self, y: Any) -> np.ndarray:
        """(B,) log p(y | x), summed over what partial labels allow."""
        mask = self._target(y).mask
        free = self.scores.beliefs(n_jobs=self._n_jobs)[0]
        inside = self.scores.beliefs(np.where(mask, self.scores.node, -np.inf), n_jobs=self._n_jobs)[0]
        # Two large numbers that may round past each other; no part weighs more than the whole.
        return np.minimum(inside - free, 0.0)
