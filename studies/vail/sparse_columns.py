"""Few true columns of very many: does `SelectedCRF` find them, and what is its answer worth?

The chief world is `make_sparse_columns`: twenty true columns of 2,000, twelve chains of sixty steps. Recall is the
share of the true columns that were chosen with any label, precision the share of the chosen ones that are true, and
accuracy that of steps in twenty chains of the same world which nobody has seen. The other worlds are what else a user
may have: labels that change more often, columns that are all true or none of them, near copies of the true ones,
columns that are seldom on, one long recording. *Nothing* is the most frequent label.

    default                 SelectedCRF()
    grafting, ℓ1 path, …    SelectedCRF(method=…), a quarter held out, chosen by errors
    twenty largest of ℓ1    by |weight|, at an eighth of the penalty that lets nothing in: the ranking without a cut
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from crfield.estimators.selected.crf import SelectedCRF
from crfield.report.findings import Claim, Findings, mean_interval
from crfield.simulate.weak_features import make_sparse_columns
from studies.framework import Case, Outcome, Outcomes, Settings, Study, by_seed, where

DEFAULT, GRAFT, L1, STABLE = "default", "grafting", "ℓ1 path", "stability"
RANKED, NOTHING = "twenty largest of ℓ1", "nothing"
RECALL, PRECISION, ACCURACY, SIZE, SECONDS = range(5)
CHIEF = "20 of 2,000"
_METHODS: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    GRAFT: {"method": "grafting"},
    L1: {"method": "l1-path"},
    STABLE: {"method": "stability"},
    RANKED: {"method": "l1-path", "validation": None, "refit_l2": None, "options": {"decay": 0.5, "n_lambdas": 3}},
}
WORLDS: dict[str, dict[str, Any]] = {
    CHIEF: {},
    "20 of 2,000, labels change more": {"stay": 0.775},
    "10 of 10": {"n_columns": 10, "n_true": 10},
    "none of 500": {"n_columns": 500, "n_true": 0},
    "20 of 500, with near copies": {"n_columns": 500},
    "20 of 500, seldom on": {"n_columns": 500, "low": 1.0, "high": 2.0},
    "20 of 500, one recording": {"n_columns": 500, "n_chains": 1, "length": 720},
}
UNSEEN = 20  # chains


def cases(settings: Settings) -> list[Case]:
    """A case is one world and seed."""
    return [
        {"seed": seed, "world": world}
        for seed in settings["seeds"]
        for world in WORLDS
        if world == CHIEF or seed in settings["seeds"][: settings["elsewhere"]]
    ]


def run(settings: Settings, case: Case) -> Outcome:
    """Method → [recall, precision, accuracy, columns, CPU seconds]; the first two None without true columns."""
    world, seed = case["world"], case["seed"]
    X, y, true, origin, unseen, labels = _data(world, seed)
    told: Outcome = {}
    counts = np.bincount(np.concatenate(y))
    told[NOTHING] = [None, None, float(np.mean(np.concatenate(labels) == counts.argmax())), 0, None]
    for name, parameters in _METHODS.items():
        few = seed in settings["seeds"][: settings["stable"]]
        if (name in (STABLE, RANKED) and world != CHIEF) or (name == STABLE and not few):
            continue
        began = time.process_time()
        model = SelectedCRF(**parameters).fit(X, y)
        seconds = time.process_time() - began
        columns = [origin[int(item.name[2:-1])] for item in model.features_]
        chosen = list(dict.fromkeys(columns))[: 20 if name == RANKED else None]
        right = len(set(chosen) & true)
        told[name] = [
            right / len(true) if true else None,
            right / max(len(chosen), 1) if true else None,
            float(model.score(unseen, labels)),
            len(chosen),
            seconds,
        ]
    return told


def _data(world: str, seed: int) -> tuple[list[Any], list[Any], set[int], list[int], list[Any], list[Any]]:
    """Sequences and labels to train on, true columns, what each column is a copy of, unseen sequences and labels."""
    options = {"n_chains": 12, **WORLDS[world]}
    trained = options["n_chains"]
    made = make_sparse_columns(random_state=seed, **{**options, "n_chains": trained + (UNSEEN if trained > 1 else 2)})
    X, true, origin = made.features, set(made.true.tolist()), list(range(options.get("n_columns", 2000)))
    if "copies" in world:
        rng = np.random.default_rng([seed, 1])
        X = [np.hstack([x, 0.95 * x[:, made.true] + rng.normal(0, 0.3, (len(x), len(made.true)))]) for x in X]
        origin += made.true.tolist()
    if "seldom" in world:
        X = [(x > 1.65).astype(float) for x in X]
    return X[:trained], made.labels[:trained], true, origin, X[trained:], made.labels[trained:]


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """One table, and what the default must do."""
    rows: list[tuple[Any, ...]] = []
    for world in WORLDS:
        some = where(outcomes, world=world)
        for name in (*_METHODS, NOTHING):
            own = [outcome[name] for _, outcome in some if name in outcome]
            if not own:
                continue
            base = np.mean([outcome[GRAFT][SECONDS] for _, outcome in some if name in outcome])
            cells: list[Any] = [
                None if own[0][what] is None else mean_interval([one[what] for one in own])
                for what in (RECALL, PRECISION, ACCURACY)
            ]
            cost = None if own[0][SECONDS] is None else f"{np.mean([one[SECONDS] for one in own]) / base:.1f}"
            rows.append((f"{world}: {name}", *cells, f"{np.mean([one[SIZE] for one in own]):.1f}", cost))
    return Findings(
        "Few true columns of many: 12 chains of 60 steps, three labels; accuracy in 20 unseen chains",
        ("model", "recall", "precision", "accuracy", "columns", "CPU time, grafting's = 1"),
        tuple(rows),
        notes=(
            "± is half of the 95 % interval over seeds",
            "near copies: each true column a second time, correlated by .95; either will do",
        ),
    )


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """What the default must do."""

    def mean(what: int, world: str = CHIEF, name: str = DEFAULT) -> float:
        return float(np.mean(by_seed(outcomes, lambda outcome: outcome[name][what], world=world)))

    claims = []
    for what, noun, least in ((RECALL, "recall", 0.75), (PRECISION, "precision", 0.75), (ACCURACY, "accuracy", 0.94)):
        found = mean(what)
        claims.append(Claim(f"ours: {CHIEF}: {noun} of the default at least {least}", found >= least, f"{found:.3f}"))
    for world in WORLDS:
        if world == CHIEF or any(case["world"] == world for case, _ in outcomes):
            rival = max((GRAFT, L1), key=lambda name: mean(ACCURACY, world, name))
            gap = mean(ACCURACY, world) - mean(ACCURACY, world, rival)
            claims.append(
                Claim(f"ours: {world}: as accurate as the better of two, {rival}", gap >= -0.005, f"{gap:+.3f}")
            )
    gap = mean(ACCURACY, "none of 500") - mean(ACCURACY, "none of 500", NOTHING)
    claims.append(Claim("ours: none of 500: not below the most frequent label", gap >= -0.02, f"{gap:+.3f}"))
    return claims


STUDY = Study(
    {"seeds": list(range(2001, 2021)), "elsewhere": 3, "stable": 4},
    {"seeds": [2001, 2002], "elsewhere": 1, "stable": 0},
    cases,
    run,
    report,
    claims,
)
