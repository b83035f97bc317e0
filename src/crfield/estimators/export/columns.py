"""Scores of single steps of models of weighted columns: chains of labels, of runs of labels, of latent states.

Numbers in arrays become `DenseSteps`, whose tables can be exported; any other form of X is scored as a short
sequence by the model itself (`SequenceSteps`), if its features do not look ahead. A chain of higher order remembers
the runs of labels that have weights (`crfield.scoring.higher_order`), which are states like any other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.states import StateSpace
from crfield.errors import InputError
from crfield.estimators.chain.model import ColumnModel
from crfield.estimators.export.states import StateSteps, check_size
from crfield.estimators.export.step_scores import DenseSteps, SequenceSteps, StepScorer, hashed
from crfield.features.encoder import Encoder
from crfield.features.templates.encoder import TemplateEncoder
from crfield.features.transformed import TransformedEncoder
from crfield.kernels import linear
from crfield.scoring.higher_order import HigherOrderLayout
from crfield.scoring.layout import Layout


def is_dense(encoder: Encoder) -> bool:
    """Whether X is arrays of plain numbers."""
    return encoder.kind == "matrix" and not encoder.state()[0]["sparse"]


def dense_names(encoder: Encoder) -> tuple[str, ...]:
    """Names of the columns of an encoder that `is_dense`."""
    return tuple([encoder.dense_name(k) for k in range(encoder.state()[0]["width"])])


def scaling(encoder: Encoder) -> dict[str, np.ndarray]:
    """Mean (D,) and deviation (D,) by which an encoder that `is_dense` scales columns; nothing where it does not."""
    arrays, names = encoder.state()[1], ("mean", "deviation")
    return {name: arrays[f"scale_dense_{name}"] for name in names if f"scale_dense_{name}" in arrays}


def column_steps(model: ColumnModel, *, history: int | None) -> StepScorer:
    """Scores of single steps of a fitted model of columns."""
    layout = model.layout
    if isinstance(layout, HigherOrderLayout):
        return _run_steps(plain_steps(model.plain(), history=history), layout, model.weights)
    return plain_steps(model, history=history)


def plain_steps(model: ColumnModel, *, history: int | None) -> DenseSteps | SequenceSteps:
    """Scores of single steps where a label looks back at one."""
    return _dense_steps(model) if is_dense(model.encoder) else _sequence_steps(model, history)


def _run_steps(inner: DenseSteps | SequenceSteps, layout: HigherOrderLayout, weights: np.ndarray) -> StateSteps:
    """A chain over the runs of labels that are remembered; the first step has none behind it."""
    runs, size = layout.runs, len(layout.runs.label)
    check_size(size, f"order={runs.order}: {size:,} runs of labels", "Train with a lower order")
    start = np.where(np.arange(size) < layout.n_labels, inner.start[runs.label], -np.inf)
    transitions = np.full((size, size), -np.inf)
    transitions[np.arange(size)[:, None], runs.after] = layout.tables(weights, inner.transitions)
    return StateSteps(
        inner,
        StateSpace(runs.label, layout.n_labels, one_path=True),
        start=start,
        end=inner.end[runs.label],
        transitions=transitions,
        parts=runs.label[:, None],
    )


def _dense_steps(model: ColumnModel) -> DenseSteps:
    layout, weights = model.layout, model.weights
    labels, part, arrays = layout.n_labels, layout.part, model.encoder.state()[1]

    def table(name: str, *shape: int) -> np.ndarray | None:
        return weights[part[name]].reshape(shape) if weights[part[name]].size else None

    node = table("dense", layout.n_dense, labels)
    start, transitions, end = chain_tables(layout, weights)
    return DenseSteps(
        np.zeros((layout.n_dense, labels)) if node is None else node,
        transitions,
        bias=table("bias", labels),  # type: ignore[arg-type]
        start=start,
        end=end,
        linked=arrays.get("edge_dense"),  # type: ignore[arg-type]
        link_weights=table("edge_dense", layout.n_edge_dense, labels, labels),  # type: ignore[arg-type]
        names=dense_names(model.encoder),
        **scaling(model.encoder),
    )


def _sequence_steps(model: ColumnModel, history: int | None) -> SequenceSteps:
    layout, encoder = model.layout, model.encoder
    varied = layout.n_edge_columns + layout.n_edge_dense > 0
    reach, repeat = 0, 1 + varied
    if isinstance(encoder, TemplateEncoder):
        rows = [row for pattern in encoder.template.patterns for row, _ in pattern.macros]
        if max(rows, default=0) > 0:
            raise InputError(
                f"the template looks {max(rows)} steps ahead, which a stream does not know yet. Train with one "
                "whose rows are 0 or below, or tag whole sequences with predict."
            )
        reach, repeat = max(-min(rows, default=0), int(varied)), 1
    elif isinstance(encoder, TransformedEncoder):
        back, ahead = getattr(encoder.transformer, "reach", (0, None))
        if ahead is None or ahead > 0:
            far = "at more than its own step" if ahead is None else f"{ahead} steps ahead"
            raise InputError(
                f"{type(encoder.transformer).__name__} may look {far}, which a stream does not know yet. Use windows "
                "of places such as (-1, 0), borders=0 and conjunctions that look back, or tag whole sequences with "
                "predict."
            )
        reach, repeat = max(back, int(varied)), 1
    elif encoder.kind == "functions":
        if history is None:
            raise InputError(
                "feature functions f(x, t) may look anywhere in x, and a stream has only the past. Pass history=k if "
                "they look at most k steps back, never ahead and not at t itself: they then see the last k + 1 steps."
            )
        reach, repeat = max(history, int(varied)), 1
    inner = model.weights.copy()
    for name in ("start", "end"):
        inner[layout.part[name]] = 0.0
    fixed = None if layout.fixed is None else layout.fixed.within()
    tagger = linear.Tagger(replace(layout, fixed=fixed), inner)

    def potentials(sequences: list[Any]) -> Potentials:
        batch = model.encode(sequences)
        return Potentials(*tagger.scores(batch), batch.topology)

    header, arrays = encoder.state()
    start, transitions, end = chain_tables(layout, model.weights)
    return SequenceSteps(
        potentials,
        start=start,
        end=end,
        transitions=transitions,
        varied=varied,
        digest=hashed([header, layout.state()[0]], [model.weights, *arrays.values(), *layout.state()[1].values()]),
        reach=reach,
        repeat=repeat,
    )


def chain_tables(layout: Layout, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores of a first step (L,), of transitions (L, L) and of a last step (L,): weights and fixed scores."""
    zeros, fixed, part = np.zeros(layout.n_labels), layout.fixed, layout.part
    start, end = (weights[part[name]] if layout.boundaries else zeros for name in ("start", "end"))
    transitions = np.nan_to_num(layout.transitions(weights), nan=0.0)
    if fixed is None:
        return start, transitions, end
    return start + fixed.start, transitions + fixed.edge, end + fixed.end
