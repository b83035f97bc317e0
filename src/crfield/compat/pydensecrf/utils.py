"""``pydensecrf.utils``: unaries from labels and probabilities, features of images of any dimensions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Number
from typing import Any

import numpy as np

from crfield.errors import DataWarning, InputError

__all__ = [
    "compute_unary",
    "create_pairwise_bilateral",
    "create_pairwise_gaussian",
    "softmax_to_unary",
    "unary_from_labels",
    "unary_from_softmax",
]


def unary_from_labels(labels: Any, n_labels: int, gt_prob: float, zero_unsure: bool = True) -> np.ndarray:
    """(n_labels, points) energies of an image of labels that are right with the probability ``gt_prob``.

    With ``zero_unsure`` 0 is unknown, which ``n_labels`` does not count.

    >>> np.exp(-unary_from_labels(np.array([[0, 1, 2]]), 2, 0.8)).astype(float).round(1).tolist()
    [[0.5, 0.8, 0.2], [0.5, 0.2, 0.8]]
    """
    if not 0 < gt_prob < 1:
        raise InputError(f"gt_prob must be in (0, 1), got {gt_prob}.")
    codes = np.asarray(labels).reshape(-1).astype(np.int64)
    first = int(bool(zero_unsure))
    if len(codes) and (codes.min() < 0 or codes.max() >= n_labels + first):
        raise InputError(f"labels must lie in 0 … {n_labels + first - 1}, got {codes.min()} … {codes.max()}.")
    others = (1.0 - gt_prob) / max(n_labels - 1, 1)
    energies = np.full((n_labels, len(codes)), -np.log(others), np.float32)
    known = np.flatnonzero(codes >= first)
    energies[codes[known] - first, known] = -np.log(gt_prob)
    energies[:, codes < first] = np.log(n_labels)
    return energies


def unary_from_softmax(sm: Any, scale: float | None = None, clip: float | None = 1e-5) -> np.ndarray:
    """(classes, points) energies of probabilities (classes, …), clipped; ``scale`` mixes them with the uniform.

    >>> unary_from_softmax(np.array([[0.9, 0.5], [0.0, 0.5]])).astype(float).round(1).tolist()
    [[0.1, 0.7], [11.5, 0.7]]
    """
    table = np.asarray(sm)
    if scale is not None:
        if not 0 < scale <= 1:
            raise InputError(f"scale must be in (0, 1], got {scale}.")
        table = scale * table + (1 - scale) / len(table)
    if clip is not None:
        table = np.clip(table, clip, 1.0)
    with np.errstate(divide="ignore"):
        return np.ascontiguousarray(-np.log(table).reshape(len(table), -1), np.float32)


def compute_unary(labels: Any, M: int, GT_PROB: float = 0.5) -> np.ndarray:
    """`unary_from_labels` under its old name."""
    warnings.warn("compute_unary is deprecated, use unary_from_labels instead.", DataWarning, stacklevel=2)
    return unary_from_labels(labels, M, GT_PROB)


def softmax_to_unary(sm: Any, GT_PROB: float = 1) -> np.ndarray:
    """`unary_from_softmax` without clipping, under its old name."""
    warnings.warn("softmax_to_unary is deprecated, use unary_from_softmax instead.", DataWarning, stacklevel=2)
    return unary_from_softmax(sm, None if GT_PROB == 1 else GT_PROB, clip=None)


def create_pairwise_gaussian(sdims: Sequence[float], shape: Sequence[int]) -> np.ndarray:
    """(D, points) positions in an array of ``shape``, along its axes, in units of ``sdims``.

    >>> create_pairwise_gaussian((2, 1), (2, 2)).tolist()
    [[0.0, 0.0, 0.5, 0.5], [0.0, 1.0, 0.0, 1.0]]
    """
    mesh = np.array(np.meshgrid(*map(np.arange, shape), indexing="ij"), dtype=np.float32)
    for axis, width in enumerate(sdims):
        mesh[axis] /= width
    return mesh.reshape(len(sdims), -1)


def create_pairwise_bilateral(sdims: Sequence[float], schan: Any, img: Any, chdim: int = -1) -> np.ndarray:
    """(D + C, points) positions and channels in units of ``sdims`` and ``schan``; ``chdim`` is the channels' axis, −1
    none.

    >>> create_pairwise_bilateral((1, 1), 2, np.array([[4, 6]])).tolist()
    [[0.0, 0.0], [0.0, 1.0], [2.0, 3.0]]
    """
    image = np.asarray(img)
    channels = image[None] if chdim == -1 else np.moveaxis(image, chdim, 0)
    scaled = np.array(channels, np.float32)
    if isinstance(schan, Number):
        scaled /= np.float32(schan)  # type: ignore[arg-type]
    else:
        for channel, width in enumerate(schan):
            scaled[channel] /= width
    mesh = create_pairwise_gaussian(sdims, scaled.shape[1:])
    return np.concatenate([mesh, scaled.reshape(len(scaled), -1)])
