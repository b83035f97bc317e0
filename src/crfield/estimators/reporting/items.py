"""What a report shows of single items: texts, signals or pictures, the n best labellings, and why labels are given.

Explanations take a few milliseconds each, so there is a budget of steps. In texts every step of the items shown is
explained as long as it lasts; of long recordings some moments are: where the model was surest and wrong, where labels
change, and where it doubted most.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crfield.data.graphs.graph import Graph
from crfield.errors import CrfieldError
from crfield.estimators.base.facts import last_step
from crfield.estimators.reporting.answers import Answers, Labeller
from crfield.estimators.reporting.by_scores import explained_by_scores, of_labels
from crfield.report.alignment import printable
from crfield.report.errors import step_text
from crfield.report.explain import Explanation
from crfield.report.page.judged import Item
from crfield.report.page.shown import GRAPH, PICTURE, ROW, TEXT, TIME, Alternative, ShownItem, Signal

SIGNALS = 6  # curves below a recording
_MOMENTS = 24  # steps explained of a recording
_LONGEST = 400  # steps of an item whose n best labellings are computed
_REMOVALS = 6


@dataclass
class Budget:
    """How many steps may still be explained."""

    left: int

    def take(self, steps: Sequence[int]) -> list[int]:
        """The first so many of the steps as are left."""
        taken = list(steps)[: max(self.left, 0)]
        self.left -= len(taken)
        return taken


def shown_items(
    model: Labeller,
    X: Any,
    answers: Answers,
    numbers: Sequence[int],
    *,
    n_best: int,
    explained: int,
    show: Callable[[Any, int], str] | None,
    renamed: Mapping[str, str],
    signals: Sequence[np.ndarray] | None,
    signal_names: Sequence[str] | None,
    seconds: float | None,
) -> tuple[ShownItem, ...]:
    """The items of these numbers, ready to be shown."""
    budget = Budget(explained)
    columns = _chosen_columns(X, answers, numbers, signals)
    out = []
    for number in numbers:
        item, source = answers.judged.items[number], answers.source[number]
        x = X[source]
        look = _look(x, item, answers.judged.item)
        raw = signals[source] if signals is not None else _table(x)
        name = _named_columns(model, x, signal_names, renamed if signals is None else {})
        curves = () if raw is None or look != TIME else _curves(raw, columns, name)
        texts = () if look in (TIME, PICTURE) else _texts(x, len(item), show)
        steps = budget.take(_steps(item, look))
        why = _why(model, x, item, answers, steps, renamed) if look in (TEXT, TIME, GRAPH) else {}
        out.append(
            ShownItem(
                number,
                item,
                look,
                texts=texts,
                signals=curves,
                picture=_picture(x if signals is None else signals[source], item) if look == PICTURE else None,
                alone=None if why or look == ROW else _alone(model, x, item),
                edges=_edges(x) if look == GRAPH else (),
                best=_best(model, x, item, answers, n_best) if look in (TEXT, TIME, GRAPH) else (),
                why=why,
                seconds=seconds if look == TIME else None,
            )
        )
    return tuple(out)


def _look(x: Any, item: Item, noun: str) -> str:
    if item.shape is not None:
        return PICTURE
    if noun == "row":
        return ROW
    if isinstance(x, Graph):
        return GRAPH
    return TIME if _table(x) is not None and len(item) > 1 else TEXT


def _table(x: Any) -> np.ndarray | None:
    """(T, K) the numbers of a recording; None where an item is none."""
    if isinstance(x, np.ndarray) and x.ndim == 2 and np.issubdtype(x.dtype, np.number):
        return np.asarray(x, dtype=np.float64)
    if isinstance(x, Mapping) and x and all(isinstance(own, np.ndarray) and own.ndim == 2 for own in x.values()):
        return np.concatenate([np.asarray(own, np.float64) for own in x.values()], axis=1) if _alike(x) else None
    if isinstance(x, list) and x and all(isinstance(step, Mapping) for step in x):
        names = list(x[0])
        if names and all(_number(step.get(name)) for step in x for name in names):
            return np.array([[float(step[name]) for name in names] for step in x])
    return None


def _alike(x: Mapping[Any, np.ndarray]) -> bool:
    return len({len(own) for own in x.values()}) == 1


def _number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _texts(x: Any, length: int, show: Callable[[Any, int], str] | None) -> tuple[str, ...]:
    nodes = next(iter(x.nodes.values()), None) if isinstance(x, Graph) and len(x.nodes) == 1 else x
    told = show or step_text
    return tuple(printable(told(x if show is not None else nodes, t)) for t in range(length))


# ------------------------------------------------------------------------------------------------- signals


def _chosen_columns(X: Any, answers: Answers, numbers: Sequence[int], signals: Any) -> list[int] | None:
    """Columns whose means differ most between labels, measured by the share of variance; None for all of few."""
    tables, codes = [], []
    for number in numbers:
        source, item = answers.source[number], answers.judged.items[number]
        table = _table(X[source]) if signals is None else np.asarray(signals[source], np.float64)
        if table is None or table.ndim != 2:
            return None
        place = np.linspace(0, max(len(table) - 1, 0), len(item)).astype(int) if len(item) else np.zeros(0, int)
        tables.append(table[place])
        codes.append(item.gold)
    if not tables or tables[0].shape[1] <= SIGNALS or len({table.shape[1] for table in tables}) > 1:
        return None
    table, code = np.concatenate(tables), np.concatenate(codes)
    table = np.nan_to_num(table)
    centred = table - table.mean(axis=0)
    between = np.zeros(table.shape[1])
    for label in np.unique(code).tolist():
        rows = centred[code == label]
        between += len(rows) * rows.mean(axis=0) ** 2
    share = between / np.maximum((centred**2).sum(axis=0), 1e-300)
    return sorted(np.argsort(-share, kind="stable")[:SIGNALS].tolist())


def _curves(raw: Any, columns: list[int] | None, name: Callable[[int], str]) -> tuple[Signal, ...]:
    table = np.asarray(raw, dtype=np.float64)
    table = table.reshape(len(table), -1)
    chosen = range(min(table.shape[1], SIGNALS)) if columns is None else columns
    return tuple(Signal.of(name(k), table[:, k]) for k in chosen if k < table.shape[1])


def renamed_columns(model: Labeller, names: Sequence[str] | None) -> dict[str, str]:
    """Names of columns by those that an encoder of arrays gives; by default those of features before the model."""
    if names is None:
        before = [step for _, step in getattr(model, "steps", ())][:-1]
        told = getattr(before[-1], "get_feature_names_out", None) if before else None
        try:
            names = None if told is None else list(told())
        except (CrfieldError, AttributeError, TypeError, ValueError):
            return {}
    encoder: Any = getattr(getattr(last_step(model), "_fitted", None), "encoder", None)
    if names is None or not hasattr(encoder, "dense_name"):
        return {}
    try:
        return {str(encoder.dense_name(k)): str(name) for k, name in enumerate(names)}
    except (CrfieldError, IndexError, TypeError):
        return {}


def _named_columns(
    model: Labeller, x: Any, given: Sequence[str] | None, renamed: Mapping[str, str]
) -> Callable[[int], str]:
    if given is not None:
        return lambda k: str(given[k]) if k < len(given) else f"column {k}"
    if isinstance(x, list) and x and isinstance(x[0], Mapping):
        names = list(map(str, x[0]))
        return lambda k: names[k]
    encoder = getattr(getattr(model, "_fitted", None), "encoder", None)
    told = getattr(encoder, "dense_name", None)

    def named(k: int) -> str:
        try:
            return renamed.get(str(told(k)), str(told(k))) if told is not None else f"column {k}"
        except (CrfieldError, IndexError, TypeError):
            return f"column {k}"

    return named


# ------------------------------------------------------------------------------------------ pictures, graphs


def _picture(x: Any, item: Item) -> np.ndarray | None:
    """(H, W) or (H, W, 3) bytes of what the model saw: its numbers, or the first of them, from least to greatest."""
    seen = np.asarray(x)
    if item.shape is None or seen.ndim not in (2, 3) or seen.shape[:2] != item.shape:
        return None
    if not np.issubdtype(seen.dtype, np.number) or (seen.ndim == 3 and seen.shape[2] not in (1, 3)):
        return None
    table = seen.astype(np.float64)
    table = table[..., 0] if table.ndim == 3 and table.shape[2] == 1 else table
    low, high = float(np.nanmin(table)), float(np.nanmax(table))
    return np.nan_to_num((table - low) / ((high - low) or 1.0) * 255.0).astype(np.uint8)


def _edges(x: Any) -> tuple[tuple[int, int], ...]:
    pairs = [pair for own in (x.edges or {}).values() for pair in np.asarray(own.pairs).tolist()]
    return tuple((int(a), int(b)) for a, b in pairs)


# ----------------------------------------------------------------------------------------- why, and what else


def _alone(model: Labeller, x: Any, item: Item) -> np.ndarray | None:
    """(N, L) probabilities by the scores of single nodes, as if there were no edges; None where there are no such."""
    node = getattr(_scores(model, x), "node", None)
    if not isinstance(node, np.ndarray) or item.chance is None or isinstance(model.classes_, Mapping):
        return None
    if node.ndim != 2 or len(node) != len(item) or node.shape[1] > item.chance.shape[1]:
        return None
    shares = np.exp(node - node.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return np.pad(shares, ((0, 0), (0, item.chance.shape[1] - shares.shape[1])))


def _scores(model: Labeller, x: Any) -> Any:
    """The potentials of one item; None where a model has none."""
    asked = getattr(model, "potentials", None)
    try:
        return None if asked is None else asked([x])
    except (CrfieldError, AttributeError, TypeError):
        return None


def _steps(item: Item, look: str) -> list[int]:
    """The steps to explain, the most wanted first."""
    wrong, sure = item.wrong, item.sure
    if look != TIME or len(item) <= _MOMENTS:
        return sorted(range(len(item)), key=lambda t: (not wrong[t], sure[t]))
    edges = np.flatnonzero(np.diff(np.concatenate([[0], wrong.astype(np.int8), [0]])))
    runs = [(first, last) for first, last in zip(edges[::2].tolist(), edges[1::2].tolist())]
    errors = [(first + last - 1) // 2 for first, last in sorted(runs, key=lambda run: run[0] - run[1])]
    turns = (np.flatnonzero(np.diff(item.predicted)) + 1).tolist()
    doubts = np.argsort(sure, kind="stable")[:_MOMENTS].tolist()
    third = _MOMENTS // 3
    surest = sorted(np.flatnonzero(wrong).tolist(), key=lambda t: -sure[t])
    kinds = {(int(item.gold[t]), int(item.predicted[t])): t for t in reversed(surest)}  # the surest of each confusion
    wanted = [*list(kinds.values())[:third], *errors[:third], *turns[:third], *doubts[: third // 2]]
    wanted += [len(item) // 2, *errors, *turns]
    return list(dict.fromkeys(wanted))[:_MOMENTS]


def _why(
    model: Labeller, x: Any, item: Item, answers: Answers, steps: list[int], renamed: Mapping[str, str]
) -> dict[int, Explanation]:
    told: dict[int, Explanation] = {}
    if not steps:
        return told
    if _explains(model):
        try:
            explain = getattr(model, "explain")  # noqa: B009
            return {t: _named(explain(x, t, removals=_REMOVALS), renamed) for t in steps}
        except CrfieldError:  # scores that are no sums of weights
            told = {}
    potentials = _scores(model, x)
    known = len(np.asarray(model.classes_)) if not isinstance(model.classes_, Mapping) else -1
    if not of_labels(potentials, known) or len(potentials.node) != len(item):
        return told
    chance = item.chance if item.chance is not None else np.full((len(item), known), np.nan)
    return explained_by_scores(potentials, answers.labels, chance, [(t, int(item.predicted[t])) for t in steps])


def _named(told: Explanation, renamed: Mapping[str, str]) -> Explanation:
    """With names of columns that people gave."""
    if not renamed:
        return told
    parts = tuple(part._replace(name=renamed.get(part.name, part.name)) for part in told.contributions)
    flip = told.flip
    if flip is not None:
        gone = tuple(each._replace(name=renamed.get(each.name, each.name)) for each in flip.removed)
        flip = replace(flip, removed=gone)
    return replace(told, contributions=parts, flip=flip)


def _explains(model: Labeller) -> bool:
    asked = getattr(model, "explain", None)
    return callable(asked) and "step" in inspect.signature(asked).parameters


def _best(model: Labeller, x: Any, item: Item, answers: Answers, n: int) -> tuple[Alternative, ...]:
    asked = getattr(model, "predict_n_best", None)
    if n < 2 or not 0 < len(item) <= _LONGEST or asked is None:
        return ()
    try:
        found = asked([x], n)[0]
    except CrfieldError:  # of hidden states there are no n best
        return ()
    code = {label: k for k, label in enumerate(answers.labels)}
    return tuple(
        Alternative(own.probability, np.array([code[label] for label in own.labels.tolist()])) for own in found
    )
