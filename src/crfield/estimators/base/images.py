"""Labels of images, volumes and point sets: one label for each pixel on the way in, arrays of the same shape out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crfield.core.typing import Labels
from crfield.errors import LabelError, ShapeError

Shape = tuple[int, ...]


def flat_labels(y: Labels, shapes: Sequence[Shape | None], *, what: str = "y") -> list[Any]:
    """Images of labels as rows of labels; where a shape is None, what is given is a row already.

    >>> flat_labels([np.array([["sky", "sky"], ["sea", "sea"]])], [(2, 2)])[0].tolist()
    ['sky', 'sky', 'sea', 'sea']
    """
    if not hasattr(y, "__len__") or isinstance(y, str | bytes):
        raise LabelError(f"{what} must be a list of images of labels, one for each image, got {type(y).__name__}.")
    flat = []
    for number, (labels, shape) in enumerate(zip(y, shapes)):
        if shape is None:
            flat.append(labels)
            continue
        table = labels if isinstance(labels, np.ndarray) else np.asarray(labels, dtype=object)
        if table.shape[: len(shape)] != shape:
            raise ShapeError(f"{what}[{number}] must have the shape {shape} of its image, got {table.shape}.")
        flat.append(table.reshape(-1).tolist() if table.dtype == object else table.reshape(-1))
    if len(flat) != len(y) or len(flat) != len(shapes):
        raise ShapeError(
            f"X has {len(shapes)} images and {what} has {len(y)} entries: give both one entry per image."
        )
    return flat


def shaped(rows: Sequence[np.ndarray] | np.ndarray, shapes: Sequence[Shape | None]) -> np.ndarray:
    """(B,) an object array: rows (N, …) in the shapes of their images.

    >>> shaped([np.arange(6)], [(2, 3)])[0].tolist()
    [[0, 1, 2], [3, 4, 5]]
    """
    out = np.empty(len(rows), dtype=object)
    for number, (values, shape) in enumerate(zip(rows, shapes)):
        out[number] = values.reshape(*shape, *values.shape[1:]) if shape else values
    return out
