"""Dense fields on made scenes: weights set by hand, and compatibilities that were learnt.

Dense fields are mostly used as they come: weights 3 and 10, widths of 3 and 60 pixels and 13 shades, as in scripts
everywhere. Scenes of `simulate.scenes` have labels with places of their own, so that which labels lie side by side
tells something, and the probabilities of a coarse network to start from. The question is what training brings, with
widths and kernels the same: one number for all labels that agree (Potts), one for each label, or one for each pair.

The ridge is chosen on a third of the training images, by the log-probability of their labels, among three strengths;
the model is then trained on all of them. Every seed has scenes of its own to train and to test on.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from crfield.errors import ConvergenceWarning
from crfield.estimators.dense.crf import DenseCRF
from crfield.report.findings import Claim, Findings, mean_interval, paired_interval
from crfield.simulate.scenes import LABELS, Scenes, make_scenes
from crfield.training.dense import FORMS
from studies.framework import Case, Outcome, Outcomes, Settings, Study, by_seeds

ALONE, HAND = "the network alone", "set by hand"
LEARNT = {form: f"learnt, {form}" for form in FORMS}
BY_HAND: dict[str, Any] = {
    "smooth_weight": 3.0,
    "colour_weight": 10.0,
    "smooth_width": 3.0,
    "position_width": 60.0,
    "colour_width": 13.0,
    "sweeps": 5,
    "learn_widths": False,
    "max_iter": 60,
}
RIDGES = (10.0, 100.0, 1000.0)


def trained(made: Scenes, numbers: list[int], form: str, l2: float) -> DenseCRF:
    """A model of these scenes."""
    model = DenseCRF(compatibility=form, l2=l2, classes=range(len(LABELS)), **BY_HAND)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a weak ridge that is not chosen may take long
        return model.fit(made.images[numbers], made.labels[numbers], unary=made.probabilities[numbers])


def run(settings: Settings, case: Case) -> Outcome:
    """Share of right test pixels of each model, and the ridge of those that were trained."""
    n_train, n_test, size = settings["n_train"], settings["n_test"], settings["size"]
    made = make_scenes(n_train + n_test, (3 * size // 4, size), random_state=case["seed"])
    train, test = list(range(n_train)), list(range(n_train, n_train + n_test))
    asked = made.images[test], made.labels[test]
    unary = made.probabilities[test]
    shares = {ALONE: float((unary.argmax(axis=-1) == made.labels[test]).mean())}
    shares[HAND] = DenseCRF(**BY_HAND).untrained(range(len(LABELS))).score(*asked, unary=unary)
    held, rest = train[::3], [k for k in train if k % 3]
    ridges = {}
    for form in FORMS:

        def judged(l2: float, form: str = form) -> float:
            model = trained(made, rest, form, l2)
            return float(model.log_prob(made.images[held], made.labels[held], unary=made.probabilities[held]).sum())

        ridges[form] = max(RIDGES, key=judged)
        shares[LEARNT[form]] = trained(made, train, form, ridges[form]).score(*asked, unary=unary)
    return {"shares": shares, "ridges": ridges}


def _shares(outcomes: Outcomes) -> dict[str, list[float]]:
    """Of each model, seed by seed."""
    shares: dict[str, list[float]] = {}
    for _, outcome in outcomes:
        for name, own in outcome["shares"].items():
            shares.setdefault(name, []).append(own)
    return shares


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """Mean shares of right pixels, and the difference to the weights set by hand."""
    shares = _shares(outcomes)
    rows = []
    for name, own in shares.items():
        chosen = [outcome["ridges"].get(name.removeprefix("learnt, ")) for _, outcome in outcomes]
        ridge = f"{np.median([c for c in chosen if c]):g}" if any(chosen) else None
        difference = None if name == HAND else paired_interval(own, shares[HAND])
        rows.append((name, ridge, mean_interval(own), difference))
    return Findings(
        f"Scenes of {3 * settings['size'] // 4} × {settings['size']}: {settings['n_train']} to learn from, "
        f"{settings['n_test']} to test on, {len(settings['seeds'])} seeds",
        ("dense field", "ridge (median)", "pixels right", "minus set by hand"),
        tuple(rows),
        notes=("± is half of the 95 % interval of the mean over seeds; differences are taken seed by seed",),
    )


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """Learnt compatibilities beat those set by hand, which beat the network alone."""
    shares = _shares(outcomes)
    pairs = [(HAND, ALONE), *((LEARNT[form], HAND) for form in FORMS)]
    out = []
    for better, worse in pairs:
        gap = paired_interval(shares[better], shares[worse])
        out.append(
            Claim(f"{better}: above {worse}", gap.low > 0, f"{gap.mean:+.4f}, from {gap.low:+.4f} to {gap.high:+.4f}")
        )
    return out


FULL: Settings = {"seeds": list(range(10)), "n_train": 9, "n_test": 8, "size": 64}
STUDY = Study(
    FULL, {**FULL, "seeds": [0, 1, 2], "n_train": 6, "n_test": 4, "size": 48}, by_seeds, run, report, claims
)
