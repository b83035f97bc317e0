"""Chains of order one, two and three: on worlds of known order, and on chunks of English sentences.

In the worlds (`simulate.order_chains`) a label repeats that of k steps before with probability .9, and fifty
observations hardly know it. A chain that looks back at fewer than k labels sees nothing but the observations; one
that looks back at k or more can come up to the model that made the data, which a forest of the true relation gives.
Nine chains are trained on, the tenth is labelled step by step from its marginals.

The sentences are those of CoNLL-2000, the first thousand of the training part, with the template of CRF++'s example
and the default penalty l2 = 1. Nothing is chosen, so the test part is used as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.estimators.chain.crf import ChainCRF
from crfield.metrics import span_f1
from crfield.report.findings import Claim, Findings, mean_interval, paired_interval
from crfield.simulate.order_chains import OrderChains, make_order_chains
from studies.framework import Case, Outcome, Outcomes, Settings, Study
from studies.text.hidden_labels import chunk_template, read_chunks
from studies.virtual_evidence.chains import CEILING, MPM, ceiling

COLUMNS = ("data", "order of the model", "states", "score", "score − order 1")
NEAR = 0.02  # of the ceiling


def cases(settings: Settings) -> list[Case]:
    """Worlds by order and seed, and sentences by the order of the model."""
    worlds = [{"world": world, "seed": seed} for world in settings["worlds"] for seed in settings["seeds"]]
    return [*worlds, *({"sentences": order} for order in settings["sentence_orders"])]


def run(settings: Settings, case: Case) -> Outcome:
    """Order of the model → score and number of states; for a world its ceiling as well."""
    if "sentences" in case:
        return {"chunks": _chunked(settings, case["sentences"])}
    made = make_order_chains(0.9, case["world"], length=settings["length"], random_state=case["seed"])
    found = {str(order): _labelled(made, order, settings) for order in settings["orders"]}
    return {CEILING: ceiling(made, 0)[MPM], **found}


def _labelled(made: OrderChains, order: int, settings: Settings) -> list[float]:
    X, y = [x.astype(np.float64) for x in made.features], [labels.tolist() for labels in made.labels]
    model = ChainCRF(order=order, decode="marginal", tol=settings["tol"], n_jobs=settings["n_jobs"])
    return [model.fit(X[1:], y[1:]).score(X[:1], y[:1]), _states(model)]


def _states(model: ChainCRF) -> int:
    return len(model.classes_) if model.order == 1 else len(model.column_model("states").layout.runs.states)  # type: ignore[attr-defined]


def _chunked(settings: Settings, order: int) -> list[float]:
    (X, y), (X_test, y_test) = (read_chunks(settings, part) for part in ("train", "test"))
    most = settings["most_sentences"]
    model = ChainCRF(template=chunk_template(), order=order, tol=settings["tol"], n_jobs=settings["n_jobs"])
    model.fit(list(X)[:most], [tags.tolist() for tags in y][:most])
    return [span_f1([tags.tolist() for tags in y_test], model.predict(list(X_test))), _states(model)]


def _scores(outcomes: Outcomes, world: int, order: int | None = None) -> list[float]:
    """Of the models of an order in a world, seed by seed; of the ceiling where there is none."""
    own = [outcome for case, outcome in outcomes if case.get("world") == world]
    return [outcome[CEILING] if order is None else outcome[str(order)][0] for outcome in own]


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """All orders on all worlds, and some on the sentences."""
    rows: list[tuple[Any, ...]] = []
    orders, length, most = settings["orders"], settings["length"], settings["most_sentences"]
    for world in settings["worlds"]:
        name, first = f"order {world}", _scores(outcomes, world, orders[0])
        rows.append((name, "ceiling", None, mean_interval(_scores(outcomes, world)), None))
        for order in orders:
            scores = _scores(outcomes, world, order)
            states = next(out[str(order)][1] for case, out in outcomes if case.get("world") == world)
            rows.append((name, order, states, mean_interval(scores), paired_interval(scores, first)))
    chunks = [(case["sentences"], *outcome["chunks"]) for case, outcome in outcomes if "sentences" in case]
    rows += [("CoNLL-2000", order, states, score, score - chunks[0][1]) for order, score, states in chunks]
    notes = (
        f"worlds: accuracy of labels by marginals, means over seeds {tuple(settings['seeds'])} of chains of "
        f"{length:,} steps; nine chains trained on",
        f"CoNLL-2000: F1 of chunks on the test part, {most:,} training sentences, l2 = 1, nothing chosen",
    )
    return Findings("Chains of higher order", COLUMNS, tuple(rows), notes=notes)


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """A model of the world's order is good enough, and one of a lower order is not."""
    claims = []
    for world in settings["worlds"]:
        if world in settings["orders"] and world > 1:
            own, lower = (_scores(outcomes, world, order) for order in (world, world - 1))
            gap, gain = paired_interval(_scores(outcomes, world), own), paired_interval(own, lower)
            near = f"order {world}: a model of its order is within {NEAR} of the ceiling"
            claims.append(Claim(near, gap.within(-np.inf, NEAR), f"{gap}"))
            claims.append(Claim(f"order {world}: one of a lower order does worse", gain.within(0.0), f"{gain}"))
    return claims


FULL: Settings = {
    "seeds": [1, 2, 3, 4, 5],
    "worlds": [1, 2, 3],
    "orders": [1, 2, 3],
    "length": 2_000,
    "most_sentences": 1_000,
    "sentence_orders": [1, 2],
    "tol": 1e-4,
}
QUICK = {"seeds": [1, 2], "worlds": [2], "orders": [1, 2], "length": 200, "most_sentences": 60, "tol": 1e-2}
STUDY = Study(FULL, {**FULL, **QUICK}, cases, run, report, claims)
