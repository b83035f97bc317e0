r"""Graphs as text: one JSON object on each line.

    {"nodes": …, "edges": {relation: …}, "labels": […]}

``nodes`` are features as `Graph` takes them: a number of nodes, rows of numbers, rows of names, or dicts of features;
or an object of such by kind. A relation is a list of pairs, or an object with ``pairs`` and, where wanted,
``features``, ``symmetric`` and ``between``. With ``"missing": true`` a number of a node may be
``null``. ``labels`` may be left out; otherwise they are a list in the order of the nodes, or an object of lists by
kind, of strings, whole numbers and booleans; ``null`` is unknown, ``{"any": […]}`` one of these.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from crfield.data.graphs.graph import Edges, Graph, features_form
from crfield.errors import FormatError, InputError, LabelError

_KEYS = ("nodes", "edges", "labels", "missing")
_EDGE_KEYS = ("pairs", "features", "symmetric", "between")


def parse_graphs(text: str, *, file: str | None = None) -> tuple[list[Graph], list[Any] | None]:
    r"""Graphs and their labels; None for the labels where no line has any. Empty lines are left out.

    >>> graphs, labels = parse_graphs('{"nodes": [["a"], ["b"]], "edges": {"next": [[0, 1]]}, "labels": ["X", null]}')
    >>> graphs[0], labels
    (Graph(2 nodes, 1 edges: next 1), [['X', None]])
    """
    graphs, labels = [], []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"expected one JSON object for a graph: {error}.", file=file, line=number) from None
        try:
            graphs.append(_graph(value))
            labels.append(_labels(value.get("labels")))
        except InputError as error:
            raise FormatError(str(error), file=file, line=number) from None
    if all(some is None for some in labels):
        return graphs, None
    if any(some is None for some in labels):
        missing = next(k for k, some in enumerate(labels) if some is None)
        raise FormatError(
            f"graph {missing} has no labels although others have. Give null for each unknown one.", file=file
        )
    return graphs, labels


def format_graphs(graphs: Iterable[Graph], labels: Sequence[Any] | None = None) -> str:
    r"""The text that `parse_graphs` reads.

    >>> format_graphs([Graph([["a"], ["b"]], {"next": [(0, 1)]})], [["X", None]])
    '{"nodes": [["a"], ["b"]], "edges": {"next": {"pairs": [[0, 1]]}}, "labels": ["X", null]}\n'
    """
    lines = []
    for number, graph in enumerate(graphs):
        value: dict[str, Any] = {"nodes": _plain_nodes(graph), "edges": _plain_edges(graph)}
        if graph.missing:
            value["missing"] = True
        if labels is not None:
            own = labels[number]
            by_kind = isinstance(own, Mapping)
            value["labels"] = {k: _plain_labels(v) for k, v in own.items()} if by_kind else _plain_labels(own)
        lines.append(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")
    return "".join(lines)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no number that a feature can have")


def _graph(value: Any) -> Graph:
    if not isinstance(value, dict) or "nodes" not in value or any(key not in _KEYS for key in value):
        raise InputError(f"a graph is an object with {', '.join(_KEYS)}, got {str(value)[:60]}.")
    edges = value.get("edges") or {}
    if isinstance(edges, dict):
        edges = {name: _edges(name, some) for name, some in edges.items()}
    return Graph(value["nodes"], edges, missing=value.get("missing", False))


def _edges(name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "pairs" not in value or any(key not in _EDGE_KEYS for key in value):
        raise InputError(f"relation {name!r} is a list of pairs or an object with {', '.join(_EDGE_KEYS)}.")
    between = value.get("between")
    return Edges(
        value["pairs"],
        value.get("features"),
        value.get("symmetric", False),
        tuple(between) if isinstance(between, list) else between,
    )


def _labels(value: Any) -> Any:
    if isinstance(value, dict):
        return {kind: _labels(some) for kind, some in value.items()}
    if value is not None and not isinstance(value, list):
        raise LabelError(f"labels are a list, or an object of lists by kind, got {str(value)[:60]}.")
    return None if value is None else [_label(item) for item in value]


def _label(item: Any) -> Any:
    if isinstance(item, dict) and list(item) == ["any"] and isinstance(item["any"], list):
        return {_label(part) for part in item["any"]}
    if item is not None and not isinstance(item, str | int | bool):
        raise LabelError(f'a label is a string, an integer, a boolean, null or {{"any": […]}}, got {item!r:.60}.')
    return item


def _plain_nodes(graph: Graph) -> Any:
    rows = {kind: _plain_rows(graph.nodes[kind], len(graph.nodes_of(kind))) for kind in graph.kinds}
    return next(iter(rows.values())) if graph.kinds == ("node",) else rows


def _plain_edges(graph: Graph) -> dict[str, Any]:
    out = {}
    for name, edges in graph.edges.items():
        value: dict[str, Any] = {"pairs": edges.pairs.tolist()}
        if edges.features is not None:
            value["features"] = _plain_rows(edges.features, edges.n_edges)
        if edges.symmetric:
            value["symmetric"] = True
        if edges.between is not None:
            value["between"] = list(edges.between)
        out[name] = value
    return out


def _plain_rows(features: Any, count: int) -> Any:
    form = features_form(features)
    if form == "none":
        return count
    if form in ("sparse", "dense"):
        table = np.asarray(features.toarray() if form == "sparse" else features)
        rows = table.tolist()
        return rows if not np.isnan(table).any() else [[None if np.isnan(v) else v for v in row] for row in rows]
    return [
        {name: v.tolist() if hasattr(v, "tolist") else v for name, v in row.items()}
        if isinstance(row, Mapping)
        else list(row)
        for row in features
    ]


def _plain_labels(labels: Any) -> list[Any]:
    return [_plain_label(item) for item in (labels.ravel() if isinstance(labels, np.ndarray) else labels)]


def _plain_label(item: Any) -> Any:
    if isinstance(item, np.generic):
        item = item.item()
    if isinstance(item, set | frozenset):
        return {"any": sorted((_plain_label(part) for part in item), key=repr)}
    if item is not None and not isinstance(item, str | int | bool):
        raise LabelError(f"a label of type {type(item).__name__} cannot be written as JSON; use a string instead.")
    return item
