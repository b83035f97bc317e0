"""Working responses: what a round of LogitBoost asks its weak learner to fit.

A Newton step on the log-likelihood of softmax F, class by class, is a weighted regression (Friedman, Hastie &
Tibshirani 2000, *Additive logistic regression*, algorithm 6):

    w_ic = p_ic (1 − p_ic)          z_ic = (1[y_i = c] − p_ic) / w_ic

z explodes where the model is confidently wrong, so it is bounded, in one of two ways:

- **Clipped to ±limit**, as is usual. Then Σ w z is no longer the slope Σ (1[y = c] − p): where p is right and below
  1/limit, the few rows of class c pull with limit instead of 1/p, and the many others win. A class of a share below
  1/limit is pressed lower, and below 1/(1 + limit) it has no resting point at all: with a limit of 4, a class of less
  than a fifth of the rows. Decisions suffer little, probabilities much.
- **Weights of at least 1/limit.** Then |z| ≤ limit by itself, and Σ w z stays the slope: shares come out right. Steps
  are shorter where p is near 0 or 1.

Two classes need only one regression: w is the same
for both and z only changes its sign. The two columns are made from one here, so that this holds to the last bit and
learners may skip half of the work. Liao et al. (2007, *Virtual evidence boosting*) write z = (y − ½) / p(y): the same
direction on half the scale, F being the score of class 1 and −F that of class 0.
"""

from __future__ import annotations

import numpy as np

from crfield.errors import LabelError, ShapeError

LEAST_WEIGHT = 1e-6


def working_responses(
    beliefs: np.ndarray, labels: np.ndarray, *, limit: float = 4.0, least: float = LEAST_WEIGHT
) -> tuple[np.ndarray, np.ndarray]:
    """Weights and responses (N, K) from probabilities (N, K) and codes of the true classes (N,).

        w = max(p (1 − p), least)        z = (1[y = c] − p) / w, clipped to ±limit

    Rows whose label is −1 (unknown) have weight and response 0.

    >>> weight, response = working_responses(np.array([[0.5, 0.5], [0.8, 0.2], [0.5, 0.5]]), np.array([1, 0, -1]))
    >>> weight.round(2).tolist(), response.round(2).tolist()
    ([[0.25, 0.25], [0.16, 0.16], [0.0, 0.0]], [[-2.0, 2.0], [1.25, -1.25], [0.0, 0.0]])
    """
    beliefs, labels = np.asarray(beliefs, np.float64), np.asarray(labels)
    if beliefs.ndim != 2 or beliefs.shape[1] < 1 or labels.shape != beliefs.shape[:1]:
        raise ShapeError(
            f"beliefs must be (n_rows, n_classes) and labels (n_rows,), got {beliefs.shape} and {labels.shape}."
        )
    classes = beliefs.shape[1]
    if len(labels) and (labels.min() < -1 or labels.max() >= classes):
        raise LabelError(
            f"labels must be codes in 0 … {classes - 1}, or -1 where unknown, got {labels.min()} … {labels.max()}."
        )
    if classes == 2:
        weight, response = _one(beliefs[:, 1], labels == 1, labels < 0, limit, least)
        return np.stack([weight, weight], axis=1), np.stack([0.0 - response, response], axis=1)
    return _one(beliefs, labels[:, None] == np.arange(classes), (labels < 0)[:, None], limit, least)


def _one(
    beliefs: np.ndarray, truth: np.ndarray, unknown: np.ndarray, limit: float, least: float
) -> tuple[np.ndarray, np.ndarray]:
    weight = np.maximum(beliefs * (1.0 - beliefs), least)
    response = np.clip((truth - beliefs) / weight, -limit, limit)
    return np.where(unknown, 0.0, weight), np.where(unknown, 0.0, response)


def centred(values: np.ndarray) -> np.ndarray:
    """Steps of K classes that sum to zero, along the last axis: (K − 1)/K · (v_c − mean v).

    Softmax does not see a constant; the factor undoes that every class was fitted as if alone. With two classes
    (−f, f) becomes (−f/2, f/2).

    >>> centred(np.array([-1.0, 1.0])).tolist(), centred(np.array([0.0, 0.0, 3.0])).tolist()
    ([-0.5, 0.5], [-0.6666666666666666, -0.6666666666666666, 1.3333333333333333])
    """
    values = np.asarray(values, np.float64)
    classes = values.shape[-1]
    return (classes - 1) / classes * (values - values.mean(axis=-1, keepdims=True))
