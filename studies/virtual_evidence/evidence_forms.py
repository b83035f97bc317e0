"""Two forms of virtual evidence for single rows: expected potentials, as in the paper, and expected scores.

`LogitBoost` classifies the steps of chains of order k one by one. It sees the observations of a step, and for each of
its ten nearest neighbours a distribution over labels: the beliefs of a first `LogitBoost` that has the observations
alone and was not fitted to that chain. This is what virtual evidence boosting does once, without its messages going
round (`studies.virtual_evidence.orders` has those). Rows of the table:

    observations           LogitBoost without evidence
    potentials             p(y) ∝ Σ_d ve(d) exp F(d), equation 4 of Liao, Choudhury, Fox & Kautz 2007
    scores                 p(y) ∝ exp Σ_d ve(d) F(d)

Which form is the better default is asked of *inner* folds, chains of the training part left out in turn; the chain
that was left out first then says whether that was right.
"""

from __future__ import annotations

import numpy as np

from crfield.estimators.boosted.logit_boost import LogitBoost
from crfield.report.findings import Claim, Findings, mean_interval, paired_interval
from crfield.simulate.order_chains import make_order_chains
from studies.framework import Case, Outcome, Outcomes, Settings, Study, above, by_seed, crossed, gap_text

ALONE, POTENTIALS, SCORES = METHODS = "observations", "potentials", "scores"
DISTANCES = (-5, -4, -3, -2, -1, 1, 2, 3, 4, 5)
INNER, OUTER = "inner", "outer"
Told = tuple[float, float]  # mean log-loss, share of right labels


cases = crossed(seed="seeds", k="k", out="folds")  # a case is one chain left out of one world of one order


def run(settings: Settings, case: Case) -> Outcome:
    """Method → where it was asked → [log-loss, right labels]."""
    world = make_order_chains(
        0.9, case["k"], n_chains=settings["n_chains"], length=settings["length"], random_state=case["seed"]
    )
    X, y = [x.astype(float) for x in world.features], world.labels
    out, rest = case["out"], [n for n in range(len(y)) if n != case["out"]]
    beliefs = {n: _alone(X, y, [m for m in rest if m != n]).predict_proba(X[n]) for n in range(len(y))}
    told: Outcome = {name: {} for name in METHODS}
    for place, asked in ((INNER, rest[: settings["inner"]]), (OUTER, [out])):
        found: dict[str, list[Told]] = {name: [] for name in METHODS}
        for held in asked:
            train = [n for n in rest if n != held]
            found[ALONE].append(_loss(_alone(X, y, train).predict_proba(X[held]), y[held]))
            for form in (POTENTIALS, SCORES):
                model = LogitBoost(n_rounds=settings["rounds"], evidence_form=form)
                model.fit(_joined(X, train), _joined(y, train), evidence=_evidence(beliefs, train))
                found[form].append(_loss(model.predict_proba(X[held], _evidence(beliefs, [held])), y[held]))
        for name in METHODS:
            told[name][place] = np.mean(found[name], axis=0).tolist()
    return told


def _alone(X: list[np.ndarray], y: list[np.ndarray], chains: list[int]) -> LogitBoost:
    return LogitBoost(n_rounds=50).fit(_joined(X, chains), _joined(y, chains))


def _joined(parts: list[np.ndarray], chosen: list[int]) -> np.ndarray:
    return np.concatenate([parts[n] for n in chosen])


def _evidence(beliefs: dict[int, np.ndarray], chains: list[int]) -> dict[str, np.ndarray]:
    """What is believed of the neighbour at every distance, (N, 2); beyond the ends of a chain nothing is known."""
    found = {}
    for distance in DISTANCES:
        parts = []
        for n in chains:
            own = np.full_like(beliefs[n], 0.5)
            place = np.arange(len(own)) + distance
            inside = (place >= 0) & (place < len(own))
            own[inside] = beliefs[n][place[inside]]
            parts.append(own)
        found[f"{distance:+d}"] = np.concatenate(parts)
    return found


def _loss(probabilities: np.ndarray, truth: np.ndarray) -> Told:
    own = probabilities[np.arange(len(truth)), truth]
    return float(-np.log(np.maximum(own, 1e-300)).mean()), float((probabilities.argmax(axis=1) == truth).mean())


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """A line for every method, columns for inner and outer folds."""
    rows = tuple(
        (name, *(mean_interval(_values(outcomes, name, place, what)) for place in (INNER, OUTER) for what in (0, 1)))
        for name in METHODS
    )
    return Findings(
        f"Forms of virtual evidence on chains of order 1 to 5: {settings['n_chains']} chains of "
        f"{settings['length']:,} labels, {settings['folds']} of them left out in turn, "
        f"{len(settings['seeds'])} worlds",
        ("evidence", "inner: log-loss", "inner: right", "outer: log-loss", "outer: right"),
        rows,
        notes=("± is half of the 95 % interval over observation models, the mean over k of each",),
    )


def _values(outcomes: Outcomes, name: str, place: str, what: int) -> list[float]:
    return by_seed(outcomes, lambda outcome: outcome[name][place][what])


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """Which form has the lower loss in inner folds, and whether the chain left out agrees."""
    claims = []
    for place in (INNER, OUTER):
        gap = paired_interval(_values(outcomes, SCORES, place, 0), _values(outcomes, POTENTIALS, place, 0))
        sentence = f"ours: expected potentials have a lower log-loss than expected scores, {place} folds"
        claims.append(Claim(sentence, gap.within(0.0), gap_text(gap, 4)))
    sentence = "ours: evidence of neighbours, as expected potentials, is worth more than none, outer folds, right"
    claims.append(above(sentence, _values(outcomes, POTENTIALS, OUTER, 1), _values(outcomes, ALONE, OUTER, 1)))
    return claims


STUDY = Study(
    {
        "k": [1, 2, 3, 4, 5],
        "seeds": [1, 2, 3, 4, 5],
        "folds": 2,
        "inner": 3,
        "n_chains": 6,
        "length": 1000,
        "rounds": 60,
    },
    {"k": [2], "seeds": [1, 2, 3], "folds": 1, "inner": 2, "n_chains": 4, "length": 400, "rounds": 40},
    cases,
    run,
    report,
    claims,
)
