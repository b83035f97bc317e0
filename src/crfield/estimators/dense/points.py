"""What a dense field reads: images, volumes or sets of points, and what is known of their labels beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.typing import Graphlike
from crfield.data.labels import LabelCoder
from crfield.errors import FeatureError, InputError, ShapeError
from crfield.estimators.base.images import Shape, flat_labels
from crfield.inference.dense import Places
from crfield.kernels.dense import MOST_DIMENSIONS

AXES = {"image": 2, "volume": 3, "points": 1}
SUREST = 1e-6  # no probability counts as smaller
LARGEST = 1e15  # of a colour or position


@dataclass(frozen=True, eq=False)
class Points:
    """One image, volume or set of points: where its points are, and their colours (N, C)."""

    places: Places
    colours: np.ndarray
    shape: Shape  # that answers have

    @property
    def n_points(self) -> int:
        """N."""
        return len(self.colours)


def read_points(X: Graphlike, form: str, n_positions: int, n_colours: int | None = None) -> list[Points]:
    """X as points; ``n_colours`` is how many there must be.

    >>> one = read_points([np.zeros((4, 5, 3))], "image", 3)[0]
    >>> one.shape, one.colours.shape, one.places.positions.shape
    ((4, 5), (20, 3), (2, 20))
    """
    axes = AXES[form]
    words = {"image": "images (H, W) or (H, W, C)", "volume": "volumes (Z, H, W) or (Z, H, W, C)"}.get(
        form, f"sets of points (N, D), the first {n_positions} columns their positions"
    )
    if isinstance(X, str | bytes) or not hasattr(X, "__len__"):
        raise InputError(f"X must be a list of {words}, got {type(X).__name__}. Write [{form}] for one.")
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "biuf":
        raise ShapeError(f"X must be a list of {words}, got one of shape {X.shape}. Write [{form}].")
    made = []
    for number, given in enumerate(X):
        try:
            table = np.asarray(given)
        except ValueError as error:
            raise ShapeError(f"{form} {number} must be an array: {error}.") from None
        if table.dtype.kind not in "biuf":
            raise FeatureError(f"{form} {number} must hold numbers, got an array of {table.dtype}.")
        right = (2,) if form == "points" else (axes, axes + 1)
        if table.ndim not in right or 0 in table.shape:
            raise ShapeError(f"X must be a list of {words}, none of them empty, got {table.shape} at {number}.")
        shape = table.shape[:axes]
        columns = table.reshape(int(np.prod(shape)), -1)
        if columns.dtype.kind == "f":
            _refuse_large(columns, number)
        if form == "points":
            if columns.shape[1] < n_positions:
                raise ShapeError(
                    f"points {number} have {columns.shape[1]} columns, and n_positions={n_positions} of them are "
                    "positions. Give more columns, or a smaller n_positions."
                )
            first = np.ascontiguousarray(columns[:, :n_positions].T, np.float64)
            positions = first - first.min(axis=1, keepdims=True)
            places, columns = Places(positions.astype(np.float32)), columns[:, n_positions:]
        else:
            places = Places.of_grid(shape)
        if n_colours is not None and columns.shape[1] != n_colours:
            raise ShapeError(
                f"{form} {number} has {columns.shape[1]} channels, and the model was trained on {n_colours}."
            )
        if len(places.positions) + columns.shape[1] > MOST_DIMENSIONS:
            raise ShapeError(
                f"{form} {number} has {columns.shape[1]} channels: positions and channels together may be "
                f"{MOST_DIMENSIONS} at most, and fewer are better. Use the first principal components."
            )
        made.append(Points(places, columns, shape))
        n_colours = columns.shape[1]
    return made


def _refuse_large(columns: np.ndarray, number: int) -> None:
    good = np.abs(columns) <= LARGEST  # NaN is not
    if not good.all():
        row, column = (int(k) for k in np.argwhere(~good)[0])
        raise FeatureError(
            f"graph {number}, node {row}: feature 'channel[{column}]' is {columns[row, column]:g}; it must be a "
            f"finite number up to {LARGEST:g}. If it stands for a missing value, fill it in."
        )


def read_unary(
    unary: Any, points: Sequence[Points], labels: LabelCoder, *, certainty: float, unknown: Any
) -> list[np.ndarray]:
    """(N, L) log-probabilities of each image, from probabilities (…, L), or from scribbles, images of labels.

    >>> one = read_points([np.zeros((1, 2))], "image", 3)
    >>> labels = LabelCoder().fit([["sea", "sky"]])
    >>> read_unary([np.array([["sky", "?"]])], one, labels, certainty=0.8, unknown="?")[0].round(2).tolist()
    [[-1.61, -0.22], [-0.69, -0.69]]
    """
    if not hasattr(unary, "__len__") or isinstance(unary, str | bytes) or len(unary) != len(points):
        got = f"{len(unary)} entries" if hasattr(unary, "__len__") else type(unary).__name__
        raise ShapeError(
            f"unary must be a list with one array for each of {len(points)} images, got {got}: probabilities of the "
            "shape of the image with an axis of labels, or an image of labels."
        )
    n_labels, made = labels.n_labels, []
    for number, (given, one) in enumerate(zip(unary, points)):
        table = np.asarray(given)
        if table.shape == one.shape:
            made.append(_scribbled(table, one, labels, certainty, unknown, number))
            continue
        if table.shape != (*one.shape, n_labels) or table.dtype.kind not in "biuf":
            raise ShapeError(
                f"unary[{number}] must be probabilities of shape {(*one.shape, n_labels)}, labels in the order "
                f"{labels.labels[:10]}, or labels of shape {one.shape}, got {table.shape} of {table.dtype}."
            )
        rows = table.reshape(-1, n_labels).astype(np.float64)
        total = rows.sum(axis=1, keepdims=True)
        if not np.isfinite(rows).all() or (rows < 0).any() or (total <= 0).any():
            raise InputError(
                f"unary[{number}] must hold probabilities: finite, not negative, and not all 0 at a pixel. For "
                "scores of a network write scipy.special.softmax(scores, axis=-1)."
            )
        made.append(np.log(np.clip(rows / total, SUREST, 1.0)))
    return made


def _scribbled(
    table: np.ndarray, one: Points, labels: LabelCoder, certainty: float, unknown: Any, number: int
) -> np.ndarray:
    listed = [None if label is None or label == unknown else label for label in table.reshape(-1).tolist()]
    codes, _ = labels.encode(flat_labels([listed], [None], what=f"unary[{number}]"), [one.n_points])
    others = (1.0 - certainty) / max(labels.n_labels - 1, 1)
    rows = np.full((len(codes), labels.n_labels), np.log(max(others, SUREST)))
    known = np.flatnonzero(codes >= 0)
    rows[known, codes[known]] = np.log(certainty)
    rows[codes < 0] = -np.log(labels.n_labels)
    return rows
