"""What graph models do by default where exact inference is too large, beside the same model without edges.

A default may not lose to something simpler. Sets on which pseudo-likelihood, the fast way to train, does or does not:

    directional blocks   three stripes of four columns, labels one-hot under noise of deviation 2; directed relations
    crosses              small crosses of two labels on a third, an eighth of the pixels replaced at random
    bimodal, Gaussian    shapes of two labels (`simulate.fields`)
    coupling c           labels drawn from a Potts field of that coupling given four random columns: with c = 0 there
                         is nothing to be learnt from neighbours, and whatever is learnt is noise
    scenes               a few pictures of large regions under uneven light, whose colours shift from picture to
                         picture: node scores that are sure of wrong labels, which couplings spread

All figures are shares of right nodes on graphs that were not trained on. *without edges* is the same model on graphs
without edges, *pseudo* is ``objective="pseudo_likelihood", decode="map"``. *cost* is the CPU time of the default
beside that of one fit of the likelihood it is made of.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter

from crfield.data.graphs.graph import Graph
from crfield.errors import ConvergenceWarning, DataWarning
from crfield.estimators.graph.crf import GraphCRF
from crfield.estimators.graph.data import target_of
from crfield.estimators.graph.grid import GridCRF
from crfield.optimize.penalty import Penalty
from crfield.report.findings import Claim, Findings
from crfield.scoring.graph_linear import GraphScorer
from crfield.simulate.fields import make_noisy_images
from crfield.training.graph.strength import Setting
from studies.framework import Case, Outcome, Outcomes, Settings, Study, each, where

COLUMNS = ("graphs", "seeds", "without edges", "auto", "least gain", "strengths", "pseudo", "cost")
COUPLINGS = (0.0, 0.2, 0.5, 0.8)
WORST, MEAN = 0.004, 0.001  # by which the default may fall below the model without edges on a world, and on average

Images = tuple[list[np.ndarray], list[np.ndarray]]


def cases(settings: Settings) -> list[Case]:
    """Every set on its seeds: worlds on ``seeds``, images on ``image_seeds``."""
    seeds = {name: settings["seeds" if name.startswith("coupling") else "image_seeds"] for name in SETS}
    return [{"set": name, "seed": seed} for name, own in seeds.items() for seed in own]


def run(settings: Settings, case: Case) -> Outcome:
    """The default on one set of images; with ``compare`` others beside it."""
    make, n_train, n_test, options = SETS[case["set"]]
    images = make(n_train + n_test, np.random.default_rng(case["seed"]))
    return one_set(images, n_train, options, settings["compare"])


def one_set(images: Images, n_train: int, options: dict[str, Any], compare: bool = True) -> Outcome:
    """Right pixels without edges and by default, the strength, right pixels by pseudo-likelihood, and the cost."""
    X, y, new, truth = images[0][:n_train], images[1][:n_train], images[0][n_train:], images[1][n_train:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        began = time.process_time()
        model = GridCRF(**options).fit(X, y)
        taken = time.process_time() - began
        bare = GraphCRF(l2=model.l2).fit(_apart(X), [labels.ravel() for labels in y])
        alone = bare.score(_apart(new), [labels.ravel() for labels in truth])
        strength = 1.0 if model.plan_.strength is None else model.plan_.strength
        found = {"alone": alone, "auto": model.score(new, truth), "strength": strength}
        if not compare:
            return found
        pseudo = GridCRF(objective="pseudo_likelihood", decode="map", **options).fit(X, y)
        cost = taken / _one_fit(model, X, y)
        return {**found, "pseudo": pseudo.score(new, truth), "cost": cost}


def _apart(images: list[np.ndarray]) -> list[Graph]:
    """Pixels without neighbours."""
    return [Graph(image.reshape(image.shape[0] * image.shape[1], -1)) for image in images]


def _one_fit(model: GridCRF, X: Any, y: Any) -> float:
    """CPU seconds of the bounded likelihood on all graphs, from the fit without edges."""
    inner = model._fitted
    batch = inner.encoder.encode(model._graphs(X))
    target = target_of(batch, inner.labels, model._labels(y, X), None)
    setting = Setting(GraphScorer(inner.layout), Penalty(l2=model.l2), model.plan_, model.tol, model.max_iter, 1)
    began = time.process_time()
    alone = setting.alone(batch, target).weights
    setting.joint(batch, target, alone, alone)
    return time.process_time() - began


def _both(outcomes: Outcomes, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(seeds,) right pixels without edges, and by default."""
    own = each(where(outcomes, set=name))
    return np.array([out["alone"] for out in own]), np.array([out["auto"] for out in own])


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """The default on all sets."""
    rows = []
    for name in SETS:
        own = each(where(outcomes, set=name))
        alone, auto = _both(outcomes, name)
        told, least = " ".join(f"{out['strength']:g}" for out in own), f"{(auto - alone).min():+.4f}"
        beside: tuple[str | None, str | None] = (None, None)
        if settings["compare"]:
            pseudo, cost = (float(np.mean([out[what] for out in own])) for what in ("pseudo", "cost"))
            beside = (f"{pseudo:.3f}", f"{cost:.1f} ×")
        rows.append((name, len(own), f"{alone.mean():.3f}", f"{auto.mean():.3f}", least, told, *beside))
    return Findings(
        "The default of GridCRF where exact inference is too large: shares of right pixels of new images",
        COLUMNS,
        tuple(rows),
        notes=("strengths are those chosen on held-out graphs, seed by seed; 0 is the model without edges",),
    )


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """Good where pairs help, and never below the model without edges."""
    claims = []
    for name, least in (
        ("directional blocks", 0.93),
        ("crosses", 0.97),
        ("bimodal noise", 0.93),
        ("Gaussian noise", 0.99),
    ):
        alone, auto = _both(outcomes, name)
        claims.append(Claim(f"{name}: at least {least:g}", bool(auto.mean() >= least), f"{auto.mean():.4f}"))
    alone, auto = _both(outcomes, "scenes")
    worst = float((auto - alone).min())
    claims.append(Claim("scenes: no seed below the model without edges", worst >= -WORST, f"{worst:+.4f}"))
    for coupling in COUPLINGS:
        alone, auto = _both(outcomes, f"coupling {coupling:g}")
        mean, worst = float((auto - alone).mean()), float((auto - alone).min())
        claims.append(
            Claim(
                f"coupling {coupling:g}: not below the model without edges",
                mean >= -MEAN and worst >= -WORST,
                f"{mean:+.4f}, worst {worst:+.4f}",
            )
        )
    return claims


# --------------------------------------------------------------------------------------------------------- sets


def _blocks(n: int, rng: np.random.Generator) -> Images:
    truth = np.repeat([0, 1, 2], 4)[None].repeat(10, axis=0)
    return [np.eye(3)[truth] + 2 * rng.normal(size=(10, 12, 3)) for _ in range(n)], [truth] * n


def _crosses(n: int, rng: np.random.Generator) -> Images:
    X, y = [], []
    for _ in range(n):
        labels = np.zeros((12, 12), np.int64)
        for _ in range(6):
            row, column = rng.integers(1, 11, 2)
            if labels[row - 1 : row + 2, column - 1 : column + 2].any():
                continue
            labels[row - 1 : row + 2, column] = labels[row, column - 1 : column + 2] = 1
            labels[row, column] = 2
        seen = np.where(rng.random(labels.shape) < 0.12, rng.integers(0, 3, labels.shape), labels)
        X.append(np.eye(3)[seen])
        y.append(labels)
    return X, y


def _shapes(noise: str) -> Callable[[int, np.random.Generator], Images]:
    def make(n: int, rng: np.random.Generator) -> Images:
        made = make_noisy_images(n, (32, 32), noise=noise, n_bases=n, random_state=rng)
        return list(made.images), list(made.labels)

    return make


def _world(coupling: float) -> Callable[[int, np.random.Generator], Images]:
    """Labels (10, 10) by sixty sweeps of Gibbs sampling, white squares and black ones in turn."""

    def make(n: int, rng: np.random.Generator) -> Images:
        size, labels = 10, 3
        X = rng.normal(size=(n, size, size, 4))
        scores = X @ rng.normal(size=(4, labels))
        y = rng.integers(0, labels, (n, size, size))
        white = np.indices((size, size)).sum(axis=0) % 2
        for sweep in range(120):
            around = np.pad(np.eye(labels)[y], ((0, 0), (1, 1), (1, 1), (0, 0)))
            near = around[:, :-2, 1:-1] + around[:, 2:, 1:-1] + around[:, 1:-1, :-2] + around[:, 1:-1, 2:]
            drawn = (scores + coupling * near + rng.gumbel(size=scores.shape)).argmax(axis=-1)
            y = np.where(white == sweep % 2, drawn, y)
        return list(X), list(y)

    return make


def _scenes(n: int, rng: np.random.Generator, shape: tuple[int, int] = (28, 40)) -> Images:
    """Four labels, each with three colours, in warped cells; texture, a slope of light, a cast of colour, noise."""
    labels = 4
    colours = rng.uniform(0.2, 0.8, (labels, 3, 3))
    rows, columns = np.indices(shape)
    X, y = [], []
    for _ in range(n):
        cells = int(rng.integers(6, 12))
        places = rng.uniform(size=(cells, 2)) * shape
        bent = [gaussian_filter(rng.normal(size=shape), 6) * 60 for _ in range(2)]
        away = [(axis + bend)[..., None] - places[:, k] for k, (axis, bend) in enumerate(zip((rows, columns), bent))]
        cell = (away[0] ** 2 + away[1] ** 2).argmin(axis=-1)
        own = np.clip(places[:, 0] / shape[0] * labels + rng.normal(scale=0.8, size=cells), 0, labels - 1).astype(int)
        colour = colours[own, rng.integers(0, 3, cells)] + rng.normal(scale=0.06, size=(cells, 3))
        grain = 0.1 * rng.normal(size=shape) + 0.35 * gaussian_filter(rng.normal(size=shape), 1.5)
        slope = rng.normal(size=2)
        light = 1 + 0.5 * ((rows / shape[0] - 0.5) * slope[0] + (columns / shape[1] - 0.5) * slope[1])
        seen = colour[cell] * (1 + grain)[..., None] * light[..., None]
        seen = np.clip(seen + rng.normal(scale=0.09, size=3) + 0.08 * rng.normal(size=(*shape, 3)), 0, 1)
        smooth = gaussian_filter(seen, (2, 2, 0))
        place = np.stack([rows / shape[0], columns / shape[1]], axis=-1)
        X.append(np.concatenate([seen, seen**2, smooth, smooth**2, place], axis=-1))
        y.append(own[cell])
    return X, y


SETS: dict[str, tuple[Callable[[int, np.random.Generator], Images], int, int, dict[str, Any]]] = {
    "directional blocks": (_blocks, 20, 20, {"directed": True}),
    "crosses": (_crosses, 20, 20, {"l2": 0.01}),
    "bimodal noise": (_shapes("bimodal"), 8, 8, {}),
    "Gaussian noise": (_shapes("gaussian"), 8, 8, {}),
    "scenes": (_scenes, 6, 10, {}),
    **{f"coupling {c:g}": (_world(c), 3, 24, {}) for c in COUPLINGS},
}
FULL: Settings = {"seeds": list(range(8)), "image_seeds": [0, 1, 2], "compare": True}
STUDY = Study(FULL, {"seeds": [0], "image_seeds": [0], "compare": False}, cases, run, report, claims)
