"""Noisy binary images: a classifier, a generative field, a conditional one and a discriminative one.

The question is that of Kumar & Hebert (2006, *Discriminative random fields*, IJCV 68): shapes under bimodal noise, in
which the intensities of both labels overlap so that no threshold parts them (`simulate.fields`). Every model sees the
intensity of a pixel in a form that suits it, and all fields join the same four neighbours, as theirs did:

    logistic regression   the intensity in a spline basis, which can bend twice; the pixel alone
    the same, 3 × 3       the spline bases of nine pixels: neighbours' intensities, but not their labels
    MRF                   a mixture of two Gaussians for each label, which is the family that made the data
    CRF                   the spline basis; pseudo-likelihood
    DRF                   logistic regression on the spline basis as local classifier; pseudo-likelihood
    DRF, likelihood       the same, the interaction fitted on by the Bethe likelihood, started from there

The generative field is at its best here: its densities are right. It has nothing left to be beaten in, and what is
asked is whether models that do not know the noise come up to it. MRF with one Gaussian shows what wrong densities
cost. Eight neighbours are shown as well, since they help everybody.

Pseudo-likelihood sees true labels all around a pixel, which are not there later, and makes the interaction a little
too strong; with a handful of weights and a good start the Bethe likelihood is cheap and mends it.

Each seed has shapes and noise of its own, and its test images show shapes that its training images do not: image i
is base i of as many bases as images. All labels are chosen node by node from loopy marginals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

from crfield.estimators.graph.discriminative_field import DiscriminativeRandomField
from crfield.estimators.graph.grid import GridCRF
from crfield.estimators.graph.markov_field import MarkovRandomField
from crfield.report.findings import Claim, Findings, mean_interval, paired_interval
from crfield.simulate.fields import make_noisy_images
from studies.framework import Case, Outcome, Outcomes, Settings, Study, by_seeds, gap_text

COLUMNS = ("model", "sees", "neighbours", "pixels right", "minus MRF")
MRF, DRF, CRF, ALONE, WINDOW, WRONG, BETHE = (
    "MRF",
    "DRF",
    "CRF",
    "logistic regression",
    "logistic regression, 3 × 3",
    "MRF, one Gaussian",
    "DRF, likelihood",
)
_KNOTS, _LOCAL_KNOTS = 12, 24  # of the features, and of the DRF's classifier, which is fitted to single pixels


def run(settings: Settings, case: Case) -> Outcome:
    """Share of right test pixels of each (model, neighbours); 0 neighbours for models without a field."""
    n_train, size = settings["n_train"], settings["size"]
    n, noise = n_train + settings["n_test"], settings["noise"]
    made = make_noisy_images(n, (size, size), noise=noise, n_bases=n, random_state=case["seed"])
    train, test = slice(0, n_train), slice(n_train, None)
    basis = SplineTransformer(n_knots=_KNOTS, knots="quantile").fit(made.images[train].reshape(-1, 1))
    bent = [basis.transform(image.reshape(-1, 1)).reshape(size, size, -1) for image in made.images]
    wide = [np.concatenate(shifted(image), axis=2) for image in bent]
    y, truth = made.labels[train], made.labels[test]

    def alone(features: list[np.ndarray]) -> float:
        flat = [
            np.concatenate([image.reshape(size * size, -1) for image in features[part]]) for part in (train, test)
        ]
        return float(LogisticRegression(max_iter=1000).fit(flat[0], y.ravel()).score(flat[1], truth.ravel()))

    local = make_pipeline(
        SplineTransformer(n_knots=_LOCAL_KNOTS, knots="quantile"), LogisticRegression(C=10.0, max_iter=1000)
    )
    shares = {(ALONE, 0): alone(bent), (WINDOW, 0): alone(wide)}
    for neighbours in (4, 8):
        options: dict[str, Any] = {"neighbours": neighbours, "engine": "loopy", "decode": "marginal"}
        models: dict[str, tuple[Any, Any]] = {
            MRF: (MarkovRandomField(n_components=2, **options), made.images),
            WRONG: (MarkovRandomField(n_components=1, **options), made.images),
            CRF: (GridCRF(objective="pseudo_likelihood", **options), bent),
            DRF: (DiscriminativeRandomField(local, cv=4, **options), made.images),
            BETHE: (DiscriminativeRandomField(local, cv=4, objective="likelihood", **options), made.images),
        }
        for name, (model, features) in models.items():
            shares[name, neighbours] = model.fit(features[train], y).score(features[test], truth)
    return {"shares": [[*key, share] for key, share in shares.items()]}


def shifted(image: np.ndarray) -> list[np.ndarray]:
    """The nine images that show at each pixel one of the 3 × 3 around it; the frame is mirrored.

    >>> [int(view[0, 0, 0]) for view in shifted(np.arange(9).reshape(3, 3, 1))]
    [4, 3, 4, 1, 0, 1, 4, 3, 4]
    """
    height, width = image.shape[:2]
    padded = np.pad(image, ((1, 1), (1, 1), (0, 0)), mode="reflect")
    return [padded[r : r + height, c : c + width] for r in range(3) for c in range(3)]


def _shares(outcomes: Outcomes) -> dict[tuple[str, int], list[float]]:
    """Of each (model, neighbours), seed by seed."""
    shares: dict[tuple[str, int], list[float]] = {}
    for _, outcome in outcomes:
        for name, neighbours, share in outcome["shares"]:
            shares.setdefault((name, neighbours), []).append(share)
    return shares


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """Mean shares of right pixels, and the difference to the MRF of as many neighbours."""
    shares, rows = _shares(outcomes), []
    sees = {MRF: "pixel, 2 Gaussians", WRONG: "pixel, 1 Gaussian", WINDOW: "9 pixels, splines"}
    for (name, neighbours), own in shares.items():
        difference = None if name == MRF else paired_interval(own, shares[MRF, neighbours or 4])
        cell = str(neighbours) if neighbours else None
        named = name if neighbours < 8 else f"{name}, 8"
        rows.append((named, sees.get(name, "pixel, splines"), cell, mean_interval(own), difference))
    return Findings(
        f"Images of {settings['size']} × {settings['size']} under {settings['noise']} noise: {settings['n_train']} "
        f"to learn from, {settings['n_test']} of other shapes to test on, {len(settings['seeds'])} seeds",
        COLUMNS,
        tuple(rows),
        notes=("± is half of the 95 % interval of the mean over seeds; differences are taken seed by seed",),
    )


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """The DRF keeps up with the MRF and is above its local classifier."""
    shares, claims = _shares(outcomes), []
    for name in (DRF, BETHE):
        for neighbours in (4, 8):
            gap = paired_interval(shares[name, neighbours], shares[MRF, neighbours])
            claims.append(Claim(f"{name}, {neighbours} neighbours: not below MRF", gap.high >= 0, gap_text(gap, 5)))
    gain = paired_interval(shares[DRF, 4], shares[ALONE, 0])
    claims.append(
        Claim("DRF is above its local classifier", gain.low > 0, f"{gain.mean:+.4f}, from {gain.low:+.4f} up")
    )
    return claims


FULL: Settings = {"seeds": list(range(10)), "n_train": 8, "n_test": 8, "size": 64, "noise": "bimodal"}
STUDY = Study(
    FULL, {**FULL, "seeds": [0, 1, 2], "n_train": 4, "n_test": 2, "size": 32}, by_seeds, run, report, claims
)
