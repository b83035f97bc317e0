"""`GridCRF`: images in, images of labels out.

Every pixel is a node, joined to its neighbours; X holds images (H, W) or stacks of feature maps (H, W, D) of any
sizes, y images of labels. What is trained and how is `GraphCRF`'s business; this class only builds the grids and puts
the answers back into images.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.core.checks import Check, flag, is_integer
from crfield.core.estimator import Estimator
from crfield.core.parameters import parameter
from crfield.core.typing import Graphlike, Labels
from crfield.data.graphs.builders import EdgeFeatures, grid
from crfield.data.graphs.graph import Graph
from crfield.errors import InputError, ShapeError
from crfield.estimators.base.images import flat_labels, shaped
from crfield.estimators.graph.crf import GraphCRF


def as_grids(X: Graphlike, **options: Any) -> list[Graph]:
    """Images as graphs; what is a `Graph` already stays.

    >>> as_grids([np.zeros((2, 3))], neighbours=4)
    [Graph(6 nodes, 7 edges: beside 7 symmetric)]
    """
    if isinstance(X, Graph | str | bytes) or not hasattr(X, "__len__"):
        raise InputError(
            f"X must be a list of images (H, W) or (H, W, D), got {type(X).__name__}. Write [image] for one."
        )
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "biuf":
        raise ShapeError(f"X must be a list of images, got one of shape {X.shape}. Write [image].")
    made = []
    for number, image in enumerate(X):
        if isinstance(image, Graph):
            made.append(image)
            continue
        try:
            made.append(grid(np.asarray(image), **options))
        except InputError as error:
            raise type(error)(f"image {number}: {error}") from None
    return made


class PixelGrids(Estimator):
    """How images become graphs and answers become images; graphs that are graphs already stay."""

    neighbours: int = parameter(Check("4 or 8", lambda value: is_integer(value) and value in (4, 8)), default=4)

    def _graphs(self, X: Graphlike) -> list[Graph]:
        return as_grids(X, neighbours=self.neighbours)

    def _labels(self, y: Labels, X: Graphlike) -> Labels:
        return flat_labels(y, image_shapes(X))

    def _shaped(self, rows: np.ndarray, X: Graphlike) -> np.ndarray:
        return shaped(rows, image_shapes(X))


def image_shapes(X: Graphlike) -> list[tuple[int, ...] | None]:
    """(H, W) of every image, None for a graph.

    >>> image_shapes([np.zeros((2, 3)), np.zeros((4, 5, 3))])
    [(2, 3), (4, 5)]
    """
    return [None if isinstance(image, Graph) else np.shape(image)[:2] for image in X]


class GridCRF(PixelGrids, GraphCRF, kind="grid_crf"):
    """Conditional random field on the pixels of images.

    Parameters
    ----------
    neighbours : 4 or 8
        How many pixels around it a pixel is joined to.
    directed : bool
        Whether right and down are different relations with tables that need not be symmetric.
    edge_features : None, "difference", "both" or function
        What the score of a pair may look at besides its labels; see `crfield.grid`.
    **options
        All parameters of `GraphCRF`.

    Examples
    --------
    >>> import numpy as np
    >>> from crfield import GridCRF
    >>> truth = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 1, 1]])
    >>> image = truth + np.random.default_rng(0).normal(scale=0.4, size=truth.shape)
    >>> model = GridCRF(l2=0.1).fit([image], [truth])
    >>> model.predict([image])[0].tolist()
    [[0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 1, 1]]
    >>> model.predict_proba([image])[0].shape
    (3, 4, 2)
    """

    directed: bool = parameter(flag, default=False)
    edge_features: EdgeFeatures = parameter(default=None)  # the builder of grids says what it may be

    def _graphs(self, X: Graphlike) -> list[Graph]:
        return as_grids(X, neighbours=self.neighbours, directed=self.directed, edge_features=self.edge_features)
