"""Graphs of the usual shapes: grids, chains with long links, coupled layers, edge lists, networkx graphs.

Each builder only numbers nodes and lists pairs; what comes out is a `Graph` like any other. Names of relations are
chosen to be read in tables of weights:

    grid     beside, diagonal (symmetric); right, down, down_right, down_left (directed)
    chain    +1, +2, … the distance
    layers   state+1 along the steps of layer "state"; state-place between two layers at the same step

Edge features can be made from those of the two ends: ``"difference"``, the absolute difference of every column, on
which a border between labels may depend; ``"both"``, the columns of tail and head side by side, with which directed
relations learn what goes with what; or a function ``f(features, tails, heads)`` of all edges of a relation at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from crfield.core.checks import is_integer
from crfield.data.graphs.graph import KIND, RELATION, Edges, Graph, checked_features, features_form
from crfield.errors import FeatureError, InputError, ShapeError

__all__ = ["chain", "edge_list", "from_networkx", "grid", "layers"]

EdgeFeatures = str | Callable[[Any, np.ndarray, np.ndarray], Any] | None


def grid(
    features: Any,
    *,
    shape: tuple[int, int] | None = None,
    neighbours: int = 4,
    directed: bool = False,
    edge_features: EdgeFeatures = None,
) -> Graph:
    """A grid of H × W nodes; cell (r, c) is node r · W + c.

    ``features`` is an array (H, W, D), an image (H, W) of single numbers, or, with ``shape=(H, W)``, whatever `Graph`
    takes for the H · W nodes row by row. A symmetric grid has the relation "beside", and "diagonal" with eight
    neighbours; a directed one has "right" and "down", and "down_right" and "down_left".

    >>> import numpy as np
    >>> grid(np.zeros((2, 3)))
    Graph(6 nodes, 7 edges: beside 7 symmetric)
    >>> grid(6, shape=(2, 3), neighbours=8, directed=True)
    Graph(6 nodes, 11 edges: right 4, down 3, down_right 2, down_left 2)
    """
    if neighbours not in (4, 8):
        raise InputError(f"a cell of a grid has 4 or 8 neighbours, got {neighbours!r}.")
    if shape is None:
        features, shape = _image(features)
    height, width = _shape(shape)
    cell = np.arange(height * width).reshape(height, width)
    steps = {
        "right": (cell[:, :-1], cell[:, 1:]),
        "down": (cell[:-1], cell[1:]),
        "down_right": (cell[:-1, :-1], cell[1:, 1:]),
        "down_left": (cell[:-1, 1:], cell[1:, :-1]),
    }
    pairs = {name: np.stack([tail.ravel(), head.ravel()], axis=1) for name, (tail, head) in steps.items()}
    if neighbours == 4:
        del pairs["down_right"], pairs["down_left"]
    if not directed:
        merged = {"beside": np.concatenate([pairs["right"], pairs["down"]])}
        if neighbours == 8:
            merged["diagonal"] = np.concatenate([pairs["down_right"], pairs["down_left"]])
        pairs = merged
    return _built(features, height * width, pairs, symmetric=not directed, edge_features=edge_features)


def chain(
    features: Any,
    *,
    distances: Sequence[int] = (1,),
    symmetric: bool = False,
    edge_features: EdgeFeatures = None,
    missing: bool = False,
) -> Graph:
    """A chain whose step t is joined to step t + d for every distance d; relations are called "+1", "+2", ….

    ``missing`` as in `Graph`.

    >>> chain([["a"], ["b"], ["a"]], distances=(1, 2))
    Graph(3 nodes, 3 edges: +1 2, +2 1)
    """
    steps = _count(features)
    pairs = {f"+{distance}": _apart(steps, distance) for distance in _distances(distances)}
    return _built(features, steps, pairs, symmetric=symmetric, edge_features=edge_features, missing=missing)


def layers(
    features: Mapping[str, Any],
    *,
    distances: Sequence[int] = (1,),
    between: str | Sequence[tuple[str, str]] = "all",
) -> Graph:
    """Coupled chains: one label of every layer at each step (a factorial model, also called a dynamic CRF).

    Each layer is a kind of nodes with labels of its own, joined in time by the relation "layer+1" (and further ones
    for other distances); two layers are joined at the same step by the relation "one-other". ``between`` lists the
    pairs of layers that are; "all" joins each with each. An int stands for that many steps without features.

    >>> layers({"state": [["fast"], ["slow"], ["slow"]], "place": 3})
    Graph(6 nodes of 2 kinds: state 3, place 3; 7 edges: state+1 2, place+1 2, state-place 3)
    """
    if not isinstance(features, Mapping) or not features:
        raise InputError(f"layers are a dict {{name: features}}, got {type(features).__name__}.")
    counts = {name: _count(some) for name, some in features.items()}
    if len(set(counts.values())) > 1:
        raise ShapeError(f"all layers must have the same number of steps, got {counts}.")
    steps = next(iter(counts.values()))
    edges: dict[str, Edges] = {}
    for name in features:
        for distance in _distances(distances):
            edges[f"{name}+{distance}"] = Edges(_apart(steps, distance), between=(name, name))
    if isinstance(between, str):
        if between != "all":
            raise InputError(f"between must be 'all' or a list of pairs of layers, got {between!r}.")
        between = list(combinations(features, 2))
    for pair in between:
        if len(pair) != 2 or pair[0] == pair[1] or any(name not in counts for name in pair):
            raise InputError(f"between joins two different layers of {list(counts)}, got {pair!r}.")
        edges[f"{pair[0]}-{pair[1]}"] = Edges(
            np.repeat(np.arange(steps), 2).reshape(-1, 2), between=(pair[0], pair[1])
        )
    return Graph(dict(features), edges)


def edge_list(
    n_nodes: int,
    edges: Any,
    *,
    features: Any = None,
    symmetric: bool = False,
    edge_features: EdgeFeatures = None,
) -> Graph:
    """A graph of ``n_nodes`` nodes from pairs of numbers, or from ``{relation: pairs}``.

    >>> edge_list(4, {"cites": [(0, 1), (2, 1)], "near": [(0, 3)]})
    Graph(4 nodes, 3 edges: cites 2, near 1)
    """
    relations = edges if isinstance(edges, Mapping) else {RELATION: edges}
    return _built(
        n_nodes if features is None else features,
        n_nodes,
        relations,
        symmetric=symmetric,
        edge_features=edge_features,
    )


def from_networkx(
    graph: Any,
    *,
    node_features: str | None = "x",
    edge_features: str | None = None,
    relation: str = "relation",
    kind: str = "kind",
    symmetric: bool | None = None,
) -> Graph:
    """A networkx graph, whose nodes are numbered in the order of ``list(graph)``.

    The arguments name attributes: features of the nodes (None: there are none) and of the edges, the relation of an
    edge ("edge" where it has no such attribute) and the kind of a node. Features are numbers, lists or arrays of
    numbers, dicts, or lists of strings. Relations of an undirected graph are symmetric, unless they join two kinds:
    then they lead from the kind that comes first to the other. Parallel edges of multigraphs all count.

    >>> class Toy:  # what is used of networkx
    ...     nodes = lambda self, data: [("a", {"x": [1.0]}), ("b", {"x": [2.0]})]
    ...     edges = lambda self, data: [("a", "b", {"relation": "near"})]
    ...     is_directed = lambda self: False
    >>> from_networkx(Toy())
    Graph(2 nodes, 1 edges: near 1 symmetric)
    """
    if not all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed")):
        raise InputError(
            f"expected a networkx graph, got {type(graph).__name__}. Use edge_list for pairs of numbers."
        )
    nodes = list(graph.nodes(data=True))
    number = {name: at for at, (name, _) in enumerate(nodes)}
    kinds = [str(data[kind]) if kind in data else KIND for _, data in nodes]
    features = _attributes([(repr(name), data) for name, data in nodes], node_features, "node", len(nodes))
    directed = bool(graph.is_directed())
    symmetric = not directed if symmetric is None else symmetric
    rank = {name: at for at, name in enumerate(dict.fromkeys(kinds))}
    pairs: dict[str, list[tuple[int, int]]] = {}
    rows: dict[str, list[tuple[str, Any]]] = {}
    for tail, head, data in graph.edges(data=True):
        name = str(data.get(relation, RELATION))
        ends = number[tail], number[head]
        if not directed and rank[kinds[ends[0]]] > rank[kinds[ends[1]]]:
            ends = ends[::-1]
        pairs.setdefault(name, []).append(ends)
        rows.setdefault(name, []).append((f"{tail!r} – {head!r}", data))
    edges = {
        name: Edges(
            some,  # type: ignore[arg-type]
            None if edge_features is None else _attributes(rows[name], edge_features, "edge", len(some)),
            symmetric=symmetric and kinds[some[0][0]] == kinds[some[0][1]],
        )
        for name, some in pairs.items()
    }
    return Graph(features, edges, kinds if len(rank) > 1 else None)


def _built(
    features: Any,
    n_nodes: int,
    pairs: Mapping[str, Any],
    *,
    symmetric: bool,
    edge_features: EdgeFeatures,
    missing: bool = False,
) -> Graph:
    made = {}
    if _count(features) != n_nodes:
        raise ShapeError(f"there are {n_nodes} nodes but {_count(features)} rows of features.")
    checked = checked_features(features, n_nodes, "nodes", "nodes", missing=missing)
    for name, some in pairs.items():
        if isinstance(some, Edges):
            made[name] = some
            continue
        edges = Edges(some, None, symmetric)
        if edge_features is not None:
            # The graph without them finds wrong numbers before features are looked up by them.
            tails, heads = Graph(n_nodes, {name: edges}).edges[name].pairs.T
            edges = Edges(some, _between(name, checked, tails, heads, edge_features, symmetric), symmetric)
        made[name] = edges
    return Graph(n_nodes if checked is None else checked, made, missing=missing)


def _between(
    name: str, features: Any, tails: np.ndarray, heads: np.ndarray, how: EdgeFeatures, symmetric: bool
) -> Any:
    """Features of edges from those of their ends."""
    if callable(how):
        return how(features, tails, heads)
    form = features_form(features)
    if how not in ("difference", "both"):
        raise InputError(f"edge_features must be None, 'difference', 'both' or a function, got {how!r}.")
    if form == "none":
        raise FeatureError(f"edge_features={how!r} needs features of the nodes, and there are none.")
    if how == "both" and symmetric:
        raise InputError(
            f"relation {name!r} is symmetric, so its features may not depend on which end comes first. Use "
            "edge_features='difference', or a directed relation."
        )
    if form == "records":
        if how == "difference":
            raise FeatureError("edge_features='difference' needs features that are numbers, got records. Use 'both'.")
        return [_joined(features[tail], features[head]) for tail, head in zip(tails, heads)]
    if how == "difference":
        return abs(features[tails] - features[heads])
    if form == "sparse":
        from scipy.sparse import hstack

        return hstack([features[tails], features[heads]], format="csr")
    return np.concatenate([features[tails], features[heads]], axis=1)


def _joined(tail: Any, head: Any) -> Any:
    if isinstance(tail, Mapping):
        return {
            f"{side}:{key}": value for side, row in (("tail", tail), ("head", head)) for key, value in row.items()
        }
    return [f"{side}:{text}" for side, row in (("tail", tail), ("head", head)) for text in row]


def _attributes(rows: list[tuple[str, Any]], name: str | None, what: str, count: int) -> Any:
    """One attribute of all nodes or edges as features; lone numbers become columns."""
    if name is None or not rows:
        return count
    found = []
    for place, data in rows:
        if name not in data:
            raise FeatureError(
                f"{what} {place} has no attribute {name!r}, which was to hold its features. Name the right "
                f"attribute, or pass {what}_features=None."
            )
        value = data[name]
        found.append([value] if isinstance(value, int | float | np.number) else value)
    if all(isinstance(value, Mapping | str) or (len(value) and isinstance(value[0], str)) for value in found):
        return [[value] if isinstance(value, str) else value for value in found]
    try:
        return np.array(found, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise FeatureError(
            f"the attribute {name!r} of the {what}s must be equally long lists of numbers, dicts, or lists of "
            f"strings: {error}."
        ) from None


def _count(features: Any) -> int:
    if isinstance(features, int | np.integer):
        return int(features)
    if hasattr(features, "shape") and len(features.shape):
        return int(features.shape[0])
    if isinstance(features, Sequence) and not isinstance(features, str):
        return len(features)
    raise FeatureError(f"features must be a matrix or a list with one row per node, got {type(features).__name__}.")


def _image(features: Any) -> tuple[np.ndarray, tuple[int, int]]:
    """An image (H, W) or (H, W, D) as rows (H · W, D), and (H, W)."""
    advice = "For other features say how they lie: grid(features, shape=(H, W))."
    try:
        image = np.asarray(features)
    except ValueError:
        raise ShapeError(f"a grid is made of rows that are equally long. {advice}") from None
    if image.ndim not in (2, 3) or image.dtype.kind not in "biuf":
        raise ShapeError(
            f"a grid is made of an image (H, W) or an array (H, W, D) of numbers, got {type(features).__name__} of "
            f"shape {image.shape}. {advice}"
        )
    height, width = image.shape[:2]
    return image.reshape(height * width, image.shape[2] if image.ndim == 3 else 1), (height, width)


def _shape(shape: Any) -> tuple[int, int]:
    if len(shape) != 2 or not all(isinstance(side, int | np.integer) and side >= 0 for side in shape):
        raise ShapeError(f"the shape of a grid is (height, width), got {shape!r}.")
    return int(shape[0]), int(shape[1])


def _distances(distances: Sequence[int]) -> list[int]:
    listed = list(distances) if isinstance(distances, Sequence | np.ndarray) else [distances]
    if not all(is_integer(d) and d >= 1 for d in listed) or len(set(listed)) != len(listed):
        raise InputError(f"distances must be distinct integers ≥ 1, got {distances!r}.")
    return [int(d) for d in listed]


def _apart(steps: int, distance: int) -> np.ndarray:
    tails = np.arange(max(0, steps - distance))
    return np.stack([tails, tails + distance], axis=1)
