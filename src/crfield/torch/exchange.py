"""Between `crfield.ChainCRF` and a layer: the same model, once as an estimator and once as a module.

The weights of transitions and of both ends are the layer's parameters; the weights of columns are what an encoder is
to the layer. `chain_emissions` has their scores as padded tensors, and a linear layer can be made a `ChainCRF`
together with the CRF on top of it, to be saved, streamed, explained or exported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from crfield.core.constraints import Constraints, FixedScores
from crfield.core.topology import Chains
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, ShapeError
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.chain.model import ColumnModel
from crfield.features.matrices import MatrixEncoder
from crfield.optimize.history import Result
from crfield.scoring.layout import Layout
from crfield.training.chain.plan import Plan

if TYPE_CHECKING:
    from crfield.torch.layer import CRFLayer

T = TypeVar("T")


def layer_of_chain(kind: type[T], model: Any, options: Mapping[str, Any]) -> T:
    """A layer of class ``kind`` with the transitions, boundaries and constraints of a fitted `ChainCRF`."""
    fitted = _columns_of(model)
    edge, start, end = _tables(fitted)
    fixed = fitted.layout.fixed
    rules = None if fixed is None else Constraints.from_scores(fixed, fitted.labels.labels)
    layer: Any = kind(fitted.labels.labels, **{"constraints": rules, **options})  # type: ignore[call-arg]
    layer.double()
    with torch.no_grad():
        for own, given in (
            (layer.transitions, edge),
            (layer.start_transitions, start),
            (layer.end_transitions, end),
        ):
            own.copy_(torch.from_numpy(given))
    return layer


def chain_emissions(model: Any, X: Any) -> tuple[Tensor, Tensor]:
    """Scores of the tags (B, T, L) that a fitted `crfield.ChainCRF` gives the steps of X, and their mask (B, T).

    With `CRFLayer.from_chain` they make the model again; with another layer they are features.

    >>> from crfield.torch import CRFLayer
    >>> model = ChainCRF().fit([[["a"], ["b"]], [["a"]]], [["A", "B"], ["A"]])
    >>> emissions, mask = chain_emissions(model, [[["a"], ["b"]], [["a"]]])
    >>> tuple(emissions.shape), mask.tolist(), CRFLayer.from_chain(model).decode(emissions, mask)
    ((2, 2, 2), [[True, True], [True, False]], [[0, 1], [0]])
    """
    fitted = _columns_of(model)
    scores = model.potentials(X)
    chains = scores.topology
    assert isinstance(chains, Chains)
    _, start, end = _tables(fitted)
    if fitted.layout.fixed is not None:
        start, end = start + fitted.layout.fixed.start, end + fitted.layout.fixed.end
    node, filled = scores.node.copy(), chains.lengths > 0
    # What is forbidden at an end stays so (−∞ − −∞ would be NaN).
    for at, table in ((chains.offsets[:-1][filled], start), (chains.offsets[1:][filled] - 1, end)):
        node[at] -= np.where(np.isneginf(table), 0.0, table)
    mask = np.arange(int(chains.lengths.max(initial=0))) < chains.lengths[:, None]
    out = np.zeros((*mask.shape, scores.n_labels))
    out[mask] = node
    return torch.from_numpy(out), torch.from_numpy(mask)


def chain_of_layer(layer: CRFLayer, linear: nn.Linear | None) -> ChainCRF:
    """A fitted `ChainCRF` that reads the columns of ``linear``, or emissions, and has the layer's transitions."""
    labels = layer.num_tags
    if linear is not None and (not isinstance(linear, nn.Linear) or linear.out_features != labels):
        raise ShapeError(f"linear must be a torch.nn.Linear that makes {labels} scores, got {linear!r:.80}.")
    columns = np.eye(labels) if linear is None else _numbers(linear.weight).T  # (D, L)
    bias = None if linear is None or linear.bias is None else _numbers(linear.bias)
    fixed = None
    if layer.fixed_edge is not None:
        fixed = FixedScores(*(_numbers(x) for x in (layer.fixed_edge, layer.fixed_start, layer.fixed_end)))
    encoder = MatrixEncoder()
    encoder.fit([np.zeros((1, len(columns)))])
    layout = Layout(
        n_labels=labels,
        n_columns=0,
        n_dense=len(columns),
        bias=bias is not None,
        boundaries=True,
        feature_ptr=np.zeros(1, np.int64),
        feature_label=np.zeros(0, np.int32),
        pairs=np.arange(labels * labels, dtype=np.int32),
        n_edge_columns=0,
        n_edge_dense=0,
        edge_ptr=np.zeros(1, np.int64),
        edge_pair=np.zeros(0, np.int32),
        fixed=fixed,
    )
    weights = np.zeros(layout.n_weights)
    for name, values in (
        ("dense", columns),
        ("bias", bias),
        ("start", _numbers(layer.start_transitions)),
        ("end", _numbers(layer.end_transitions)),
        ("transitions", _numbers(layer.transitions)),
    ):
        if values is not None:
            weights[layout.part[name]] = values.ravel()
    coder = LabelCoder.from_classes(layer.labels)
    rules = None if fixed is None else Constraints.from_scores(fixed, coder.labels)
    model = ChainCRF(constraints=rules, transition_pairs="all", feature_pairs="all", intercept=bias is not None)
    model.plan_ = Plan("likelihood", "none", "converted from a layer of PyTorch")
    result = Result(weights, 0.0, 0, 0, True, "converted", [])
    return model.holding(ColumnModel(coder, encoder, layout, weights), result)


def _numbers(x: Tensor) -> np.ndarray:
    found: np.ndarray = x.detach().cpu().double().numpy().copy()
    return found


def _columns_of(model: Any) -> ColumnModel:
    fitted = model._fitted if isinstance(model, ChainCRF) else None
    if not isinstance(fitted, ColumnModel) or fitted.higher_order or fitted.layout.n_edge_columns:
        raise InputError(
            "a layer has one score for each pair of tags: give a fitted ChainCRF of order 1 without transition "
            f"features, got {model!r:.60}."
        )
    if fitted.layout.n_edge_dense:
        raise InputError("a layer has one score for each pair of tags; this ChainCRF has transition features.")
    return fitted


def _tables(fitted: ColumnModel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Learnt scores of pairs, of the first and of the last step, without those of the constraints."""
    layout, weights = fitted.layout, fitted.weights
    labels = layout.n_labels
    ends = [weights[layout.part[name]] if layout.boundaries else np.zeros(labels) for name in ("start", "end")]
    return np.nan_to_num(layout.transitions(weights), nan=0.0), *ends
