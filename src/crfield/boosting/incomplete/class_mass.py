"""Class mass normalisation: probabilities of a batch, brought to the share of each class that is expected.

(Zhu, Ghahramani & Lafferty 2003, *Semi-supervised learning using Gaussian fields and harmonic functions*, section 4.)
A model may know well which data are likelier to be of a class than others and still give too much or too little to
the class as a whole. Each class is multiplied by its expected share over its share in the batch, and rows are
normalised again. It is a step on a batch, so what it says of a datum depends on the company it comes in.
"""

from __future__ import annotations

import numpy as np

from crfield.errors import InputError, ShapeError


def class_mass_normalised(probabilities: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """(N, Y) rows ∝ p_i(y) · share(y) / mean_i p_i(y).

    >>> class_mass_normalised(np.array([[0.9, 0.1], [0.7, 0.3]]), np.array([0.5, 0.5])).round(3).tolist()
    [[0.692, 0.308], [0.368, 0.632]]
    """
    shares = np.asarray(shares, dtype=np.float64)
    if probabilities.ndim != 2 or shares.shape != probabilities.shape[1:]:
        raise ShapeError(f"shares must be one number per class, {probabilities.shape[1:]}, got shape {shares.shape}.")
    if not (np.isfinite(shares).all() and (shares >= 0).all() and shares.sum() > 0):
        raise InputError(f"shares of classes must be finite, non-negative and not all 0, got {shares.tolist()}.")
    if not len(probabilities):
        return probabilities
    mass = probabilities.mean(axis=0)
    scaled = probabilities * np.divide(shares, mass, out=np.zeros_like(mass), where=mass > 0)
    total = scaled.sum(axis=1, keepdims=True)
    return np.where(total > 0, scaled / np.where(total > 0, total, 1.0), probabilities)
