"""Bags of visual words in which part of each picture shows an object: a world for incomplete information.

A picture is a bag of *points*, each of them one of K visual words. Some points lie on the object, whose class is the
label, the others on the background; where the object's contour is known, every point says which of the two it is.
That is the task of Haffari, Wang, Wang, Mori & Jiao (2008, *Boosting with incomplete information*, section 6.1).
Their pictures, Caltech-4 with hand-drawn contours, are not public in that form. This world has their structure: four
classes, two hundred words, contours for three in ten of the training pictures, half of all pictures to test on.

        share ρ ~ Beta(20 φ, 20 (1 − φ))      of t points, m ~ Binomial(t, ρ) on the object
        object words      ~ .7 object of the class + .3 mean background
        background words  ~ one of six backgrounds, and with chance ``clutter`` half of it an object of any class

An object in the background that is nobody's label is what makes contours worth something: a bag without them cannot
tell whose words they are. Who knows all the chances could do no better than the posterior of `VisualWords.posterior`,
the Bayes ceiling. It is exact. Given ρ the points are independent draws from a mixture, so the likelihood is a
polynomial of degree t in ρ, and Gauss–Jacobi quadrature with more than t / 2 nodes integrates it against the Beta
density without error; the background and the clutter are summed one by one.

Numbers are drawn in one fixed order, so a seed means the same pictures everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from crfield.errors import InputError

HARD: Mapping[str, Any] = MappingProxyType({"points": (30, 90), "clutter": 0.5, "foreground": 0.3})
EASY: Mapping[str, Any] = MappingProxyType({"points": (60, 200), "clutter": 0.2, "foreground": 0.4})

_BACKGROUNDS = 6
_CONCENTRATION = 20.0  # of the share of a picture that its object takes
_OWN = 0.7  # share of an object's points that show its own words
_DISTRACTION = 0.5  # share of a cluttered background that its distractor takes


@dataclass(frozen=True, eq=False)
class VisualWords:
    """Bags of visual words, how many of each word lie on the object, labels, and the chances that made them.

    >>> made = make_visual_words(20, n_words=30)
    >>> made
    <VisualWords: 20 pictures, 30 words, 4 classes>
    >>> bool((made.foreground <= made.counts).all()), made.posterior().shape
    (True, (20, 4))
    """

    counts: np.ndarray  # (n, K) int64, points of each word
    foreground: np.ndarray  # (n, K) int64, those of them on the object
    labels: np.ndarray  # (n,) int64
    objects: np.ndarray  # (Y, K) words of the objects
    backgrounds: np.ndarray  # (6, K) words of the backgrounds
    clutter: float
    share: float  # mean share of points on the object

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        n_classes, n_words = self.objects.shape
        return f"<VisualWords: {len(self):,} pictures, {n_words} words, {n_classes} classes>"

    def parts(
        self, *, observed: float = 0.3, random_state: int | np.random.Generator | None = 0
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows to learn from, which of these have a contour, and rows to test on (half of all).

        >>> train, known, test = make_visual_words(100, n_words=30).parts()
        >>> len(train), int(known.sum()), len(test)
        (50, 15, 50)
        """
        if not 0 <= observed <= 1:
            raise InputError(f"observed is the share of pictures with a contour, in 0 … 1; got {observed}.")
        order = np.random.default_rng(random_state).permutation(len(self))
        train, test = order[: len(order) // 2], order[len(order) // 2 :]
        return train, np.arange(len(train)) < int(observed * len(train)), test

    def posterior(self, rows: Any = slice(None), *, observed: bool = False) -> np.ndarray:
        """(rows, Y) the probability of each class given the picture, and the contour if ``observed``.

            contour known    p(y | x, h) ∝ Π_j object_y(j)^{foreground_j}
            contour hidden   p(y | x) ∝ Σ_b p(b) ∫ Beta(ρ) Π_j [ρ object_y(j) + (1 − ρ) background_b(j)]^{counts_j} dρ

        >>> made = make_visual_words(200, random_state=1)
        >>> hidden, seen = ((made.posterior(observed=o).argmax(axis=1) == made.labels).mean() for o in (False, True))
        >>> bool(0.25 < hidden < seen)
        True
        """
        shown = _OWN * self.objects + (1 - _OWN) * self.backgrounds.mean(axis=0)
        if observed:
            scores = self.foreground[rows] @ np.log(np.maximum(shown, 1e-300)).T
        else:
            scores = self._hidden_scores(self.counts[rows], shown)
        scores -= scores.max(axis=1, keepdims=True)
        chances = np.exp(scores)
        return chances / chances.sum(axis=1, keepdims=True)

    def _hidden_scores(self, counts: np.ndarray, shown: np.ndarray) -> np.ndarray:
        """(n, Y) log p(x | y) but for what all classes share."""
        from scipy.special import logsumexp, roots_jacobi

        n_classes = len(shown)
        degree = int(counts.sum(axis=1).max(initial=0))
        on, off = _CONCENTRATION * self.share, _CONCENTRATION * (1 - self.share)
        nodes, weights = roots_jacobi(degree // 2 + 1, off - 1, on - 1)
        shares = (1 + nodes) / 2
        distracted = (1 - _DISTRACTION) * self.backgrounds[:, None] + _DISTRACTION * self.objects
        behind = np.concatenate([self.backgrounds, distracted.reshape(-1, counts.shape[1])])  # (G, K)
        chance = np.repeat(
            [(1 - self.clutter) / _BACKGROUNDS, self.clutter / (_BACKGROUNDS * n_classes)],
            [_BACKGROUNDS, _BACKGROUNDS * n_classes],
        )
        with np.errstate(divide="ignore"):
            weigh = np.log(chance)[:, None] + np.log(weights)  # (G, nodes)
        scores = np.empty((len(counts), n_classes))
        for label, own in enumerate(shown):
            mixed = shares[:, None] * own + (1 - shares[:, None]) * behind[:, None]  # (G, nodes, K)
            fits = counts @ np.log(np.maximum(mixed, 1e-300)).reshape(-1, counts.shape[1]).T
            scores[:, label] = logsumexp(fits + weigh.ravel(), axis=1)
        return scores


def make_visual_words(
    n: int = 1_000,
    *,
    n_words: int = 200,
    n_classes: int = 4,
    points: tuple[int, int] = (30, 90),
    clutter: float = 0.5,
    foreground: float = 0.3,
    random_state: int | np.random.Generator | None = 0,
) -> VisualWords:
    """Make n bags of visual words of ``points[0]`` to ``points[1]`` − 1 points.

    ``clutter`` is the chance of a distractor in the background, ``foreground`` the mean share of points on objects.
    The defaults are the settings `HARD`; `EASY` has more points, larger objects and less clutter.

    >>> a, b = make_visual_words(50, random_state=3), make_visual_words(50, random_state=3)
    >>> bool((a.counts == b.counts).all())
    True
    >>> bool(make_visual_words(2, n_words=10, **EASY).counts.sum(axis=1).min() >= 60)
    True
    """
    low, high = points
    if n < 0 or n_words < 1 or n_classes < 1 or not 0 <= low < high:
        raise InputError(
            "expected n ≥ 0, n_words ≥ 1, n_classes ≥ 1 and points = (low, high) with 0 ≤ low < high, got "
            f"n={n}, n_words={n_words}, n_classes={n_classes}, points={points}."
        )
    if not (0 <= clutter <= 1 and 0 < foreground < 1):
        raise InputError(f"expected clutter in 0 … 1 and foreground between 0 and 1, got {clutter} and {foreground}.")
    rng = np.random.default_rng(random_state)
    objects = rng.dirichlet(np.full(n_words, 0.08), n_classes)
    backgrounds = rng.dirichlet(np.full(n_words, 0.3), _BACKGROUNDS)
    labels = rng.integers(0, n_classes, n)
    counts, on_object = np.zeros((n, n_words), np.int64), np.zeros((n, n_words), np.int64)
    shown = _OWN * objects + (1 - _OWN) * backgrounds.mean(axis=0)
    for i in range(n):
        t = rng.integers(low, high)
        share = rng.beta(_CONCENTRATION * foreground, _CONCENTRATION * (1 - foreground))
        m = rng.binomial(t, share)
        behind = backgrounds[rng.choice(_BACKGROUNDS)]
        if rng.random() < clutter:
            behind = (1 - _DISTRACTION) * behind + _DISTRACTION * objects[rng.integers(0, n_classes)]
        on_object[i] = rng.multinomial(m, shown[labels[i]])
        counts[i] = on_object[i] + rng.multinomial(t - m, behind)
    return VisualWords(counts, on_object, labels, objects, backgrounds, float(clutter), float(foreground))
