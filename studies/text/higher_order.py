"""Chains of order one, two and three: on worlds of known order, and on chunks of English sentences.

In the worlds (`simulate.order_chains`) a label repeats that of k steps before with probability .9, and fifty
observations hardly know it. A chain that looks back at fewer than k labels sees nothing but the observations; one
that looks back at k or more can come up to the model that made the data, which a forest of the true relation gives.
Nine chains are trained on, the tenth is labelled step by step from its marginals.

The sentences are those of CoNLL-2000, the first thousand of the training part, with the template of CRF++'s example
and the default penalty l2 = 1. Nothing is chosen, so the test part is used as it is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.estimators.chain.crf import ChainCRF
from crfield.inference.graphs.forest import ForestEngine
from crfield.metrics import span_f1
from crfield.report.findings import Claim, Findings, mean_interval, paired_interval
from crfield.simulate.order_chains import OrderChains, make_order_chains
from crfield.storage.exchange import read_columns

COLUMNS = ("data", "order of the model", "states", "score", "score − order 1")
WINDOWS = (
    "-2,0 -1,0 0,0 1,0 2,0 -1,0/0,0 0,0/1,0 -2,1 -1,1 0,1 1,1 2,1 -2,1/-1,1 -1,1/0,1 0,1/1,1 1,1/2,1 "
    "-2,1/-1,1/0,1 -1,1/0,1/1,1 0,1/1,1/2,1"
)
NEAR = 0.02  # of the ceiling


def higher_order(
    data: str,
    *,
    worlds: Sequence[int] = (1, 2, 3),
    orders: Sequence[int] = (1, 2, 3),
    seeds: Sequence[int] = (1, 2, 3, 4, 5),
    length: int = 2_000,
    most_sentences: int = 1_000,
    sentence_orders: Sequence[int] = (1, 2),
    tol: float = 1e-4,
    n_jobs: int = 1,
) -> Findings:
    """All orders on all worlds, and some on the sentences under ``data``."""
    rows: list[tuple[Any, ...]] = []
    claims: list[Claim] = []
    for world in worlds:
        made = [make_order_chains(0.9, world, length=length, random_state=seed) for seed in seeds]
        ceiling = [_ceiling(one) for one in made]
        found = {order: [_labelled(one, order, tol, n_jobs) for one in made] for order in orders}
        name = f"order {world}"
        rows.append((name, "ceiling", None, mean_interval(ceiling), None))
        first = [score for score, _ in found[orders[0]]]
        for order in orders:
            scores = [score for score, _ in found[order]]
            rows.append((name, order, found[order][0][1], mean_interval(scores), paired_interval(scores, first)))
        if world in orders and world > 1:
            own = [score for score, _ in found[world]]
            gap, gain = paired_interval(ceiling, own), paired_interval(own, [s for s, _ in found[world - 1]])
            near = f"{name}: a model of its order is within {NEAR} of the ceiling"
            claims.append(Claim(near, gap.mean <= NEAR, f"{gap}"))
            claims.append(Claim(f"{name}: one of a lower order does worse", gain.low > 0, f"{gain}"))
    base: float | None = None
    for order in sentence_orders:
        score, states = _chunked(data, order, most_sentences, tol, n_jobs)
        base = score if base is None else base
        rows.append(("CoNLL-2000", order, states, score, score - base))
    notes = (
        f"worlds: accuracy of labels by marginals, means over seeds {tuple(seeds)} of chains of {length:,} steps; "
        "nine chains trained on",
        f"CoNLL-2000: F1 of chunks on the test part, {most_sentences:,} training sentences, l2 = 1, nothing chosen",
    )
    return Findings("Chains of higher order", COLUMNS, tuple(rows), tuple(claims), notes)


def _labelled(made: OrderChains, order: int, tol: float, n_jobs: int) -> tuple[float, int]:
    X, y = [x.astype(np.float64) for x in made.features], [labels.tolist() for labels in made.labels]
    model = ChainCRF(order=order, decode="marginal", tol=tol, n_jobs=n_jobs).fit(X[1:], y[1:])
    return model.score(X[:1], y[:1]), _states(model)


def _states(model: ChainCRF) -> int:
    return len(model.classes_) if model.order == 1 else len(model._columns("states").layout.runs.states)  # type: ignore[attr-defined]


def _ceiling(made: OrderChains) -> float:
    steps = np.arange(len(made.labels[0]) - made.order)
    graph = Graphs(np.array([0, len(made.labels[0])]), steps, steps + made.order)
    scores = Potentials(made.node_scores[0], made.edge_scores[None], graph)
    node = ForestEngine().infer(scores, Semiring.LOG).node
    return float((node.argmax(axis=1) == made.labels[0]).mean())


def _chunked(data: str, order: int, most: int, tol: float, n_jobs: int) -> tuple[float, int]:
    parts = []
    for name in ("train", "test"):
        X, y = read_columns(os.path.join(data, "conll2000", f"{name}.txt.gz")).split_column(-1)
        parts.append((list(X), [tags.tolist() for tags in y]))
    lines = [
        f"U{k:02d}:" + "/".join(f"%x[{place}]" for place in window.split("/"))
        for k, window in enumerate(WINDOWS.split())
    ]
    model = ChainCRF(template="\n".join([*lines, "B"]), order=order, tol=tol, n_jobs=n_jobs)
    model.fit(parts[0][0][:most], parts[0][1][:most])
    return span_f1(parts[1][1], model.predict(parts[1][0])), _states(model)
