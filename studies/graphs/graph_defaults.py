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
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from crfield.data.graphs.graph import Graph
from crfield.errors import ConvergenceWarning, DataWarning
from crfield.estimators.graph.answers import target_of
from crfield.estimators.graph.crf import GraphCRF
from crfield.estimators.graph.grid import GridCRF
from crfield.optimize.penalty import Penalty
from crfield.report.findings import Claim, Findings
from crfield.scoring.graph_linear import GraphScorer
from crfield.simulate.fields import make_noisy_images
from crfield.training.graph.strength import Setting

COLUMNS = ("graphs", "seeds", "without edges", "auto", "least gain", "strengths", "pseudo", "cost")
COUPLINGS = (0.0, 0.2, 0.5, 0.8)
WORST, MEAN = 0.004, 0.001  # by which the default may fall below the model without edges on a world, and on average

Images = tuple[list[np.ndarray], list[np.ndarray]]


def graph_defaults(
    *, seeds: Sequence[int] = tuple(range(8)), image_seeds: Sequence[int] = (0, 1, 2), compare: bool = True
) -> Findings:
    """The default on all sets: worlds on ``seeds``, images on ``image_seeds``; with ``compare`` others beside it."""
    sets: dict[str, tuple[Sequence[int], Callable[[int, np.random.Generator], Images], int, int, dict[str, Any]]] = {
        "directional blocks": (image_seeds, _blocks, 20, 20, {"directed": True}),
        "crosses": (image_seeds, _crosses, 20, 20, {"l2": 0.01}),
        "bimodal noise": (image_seeds, _shapes("bimodal"), 8, 8, {}),
        "Gaussian noise": (image_seeds, _shapes("gaussian"), 8, 8, {}),
        "scenes": (image_seeds, _scenes, 6, 10, {}),
        **{f"coupling {c:g}": (seeds, _world(c), 3, 24, {}) for c in COUPLINGS},
    }
    rows, gains = [], {}
    for name, (own, make, n_train, n_test, options) in sets.items():
        found = [
            one_set(make(n_train + n_test, np.random.default_rng(seed)), n_train, options, compare) for seed in own
        ]
        alone, auto, strength, pseudo, cost = (np.array(some) for some in zip(*found))
        gains[name] = (alone, auto)
        told = " ".join(f"{s:g}" for s in strength)
        beside = (float(pseudo.mean()), f"{cost.mean():.1f} ×") if compare else (None, None)
        least = f"{(auto - alone).min():+.4f}"
        rows.append((name, len(own), f"{alone.mean():.3f}", f"{auto.mean():.3f}", least, told, *beside))
    rows = [(*row[:6], None if row[6] is None else f"{row[6]:.3f}", row[7]) for row in rows]
    return Findings(
        "The default of GridCRF where exact inference is too large: shares of right pixels of new images",
        COLUMNS,
        tuple(rows),
        tuple(_claims(gains)),
        ("strengths are those chosen on held-out graphs, seed by seed; 0 is the model without edges",),
    )


def one_set(
    images: Images, n_train: int, options: dict[str, Any], compare: bool = True
) -> tuple[float, float, float, float, float]:
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
        if not compare:
            return alone, model.score(new, truth), strength, np.nan, np.nan
        pseudo = GridCRF(objective="pseudo_likelihood", decode="map", **options).fit(X, y)
        cost = taken / _one_fit(model, X, y)
        return alone, model.score(new, truth), strength, pseudo.score(new, truth), cost


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


def _claims(gains: dict[str, tuple[np.ndarray, np.ndarray]]) -> list[Claim]:
    claims = []
    for name, least in (
        ("directional blocks", 0.93),
        ("crosses", 0.97),
        ("bimodal noise", 0.93),
        ("Gaussian noise", 0.99),
    ):
        alone, auto = gains[name]
        claims.append(Claim(f"{name}: at least {least:g}", bool(auto.mean() >= least), f"{auto.mean():.4f}"))
    alone, auto = gains["scenes"]
    worst = float((auto - alone).min())
    claims.append(Claim("scenes: no seed below the model without edges", worst >= -WORST, f"{worst:+.4f}"))
    for coupling in COUPLINGS:
        alone, auto = gains[f"coupling {coupling:g}"]
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
    from scipy.ndimage import gaussian_filter

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
