"""Recordings that differ in their label rates, which relations at every distance take for their own.

If one person walks most of the time and another hardly ever, a step's label tells who it is, and with it the label of
every other step of the recording, near or far. Relations at all distances then gain, and none of them need be true.
What is left of the labels once the columns have spoken, u = [y = c] − softmax F(c) about its mean, tells whether that
is so. Let recording b have the mean m_b of u over its n_b labelled steps, and let v be the variance of u. Dependence
between steps, of correlation ρ_d at distance d, makes a mean as uncertain as one of n_b / τ independent steps:

    τ = max_d (1 + ρ_d) / (1 − ρ_d)        Σ_b n_b m_b² / (v τ) ~ χ²  of B − 1 degrees of freedom

where recordings are alike. That τ holds for a chain whose labels depend on those d steps before; ρ_d is taken about
the mean of all recordings, so that their differences raise it too, and the test errs on the side of silence. What
means vary by beyond it, as a share of v, is the correlation that steps have at any distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LAGS = 10  # distances at which dependence is looked for, besides those of the relations
LEAST_STEPS = 3.0  # independent steps of a label, and of the others, that a recording must have on average
CHANCE = 1e-4  # of a difference as large where recordings are alike, for any label
LEAST_SHARE = 0.05  # correlation between far steps that is worth a word


@dataclass(frozen=True)
class Differing:
    """A label whose rate differs between recordings, and its smallest and largest rate."""

    label: int
    rates: tuple[float, float]
    correlation: float  # of steps at any distance


def differing_rates(
    labels: np.ndarray, beliefs: np.ndarray, offsets: np.ndarray, distances: Sequence[int] = ()
) -> Differing | None:
    """The label whose rate differs most between sequences beyond chance, dependence and what columns believe.

    ``labels`` (N,) are codes, −1 where unknown; ``beliefs`` (N, L) those of the columns alone; sequence b has the
    nodes ``offsets[b]`` … ``offsets[b + 1]``; ``distances`` are those at which labels may depend on each other.

    >>> rng = np.random.default_rng(0)
    >>> half, offsets = np.full((400, 2), 0.5), np.arange(0, 401, 100)
    >>> differing_rates(rng.integers(0, 2, 400), half, offsets) is None
    True
    >>> differing_rates((rng.random(400) < np.repeat([0.2, 0.8, 0.2, 0.8], 100)).astype(int), half, offsets).label
    0
    """
    of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    known = labels >= 0
    counts = np.bincount(of[known], minlength=len(offsets) - 1)
    used = counts > 0
    if used.sum() < 2:
        return None
    longest = float(np.median(counts[used])) / 4  # farther pairs are few
    lags = [d for d in sorted({*range(1, LAGS + 1), *distances}) if d <= longest]
    found: list[Differing] = []
    for label in range(beliefs.shape[1]):
        own = labels == label
        rest = np.where(known, own - beliefs[:, label], 0.0)
        rest = np.where(known, rest - rest[known].mean(), 0.0)  # (N,) u, 0 where unknown
        variance = float(rest[known] @ rest[known]) / known.sum()
        if variance < 1e-12:
            continue
        tau = max([1.0, *(_slowness(rest, known, of, d, variance) for d in lags)])
        rates = np.bincount(of, own, minlength=len(counts))[used] / counts[used]
        share = float(own[known].mean())
        if min(share, 1.0 - share) * counts[used].mean() < LEAST_STEPS * tau:
            continue
        means = np.bincount(of, rest, minlength=len(counts))[used] / counts[used]
        spread, degrees = float(counts[used] @ means**2), len(means) - 1
        correlation = (spread / variance - degrees * tau) / known.sum()
        if correlation > LEAST_SHARE and _chance(spread / (variance * tau), degrees) * beliefs.shape[1] < CHANCE:
            found.append(Differing(label, (float(rates.min()), float(rates.max())), correlation))
    return max(found, key=lambda one: round(one.correlation, 9), default=None)


def _slowness(rest: np.ndarray, known: np.ndarray, of: np.ndarray, d: int, variance: float) -> float:
    """τ of a dependence at distance d."""
    pairs = known[d:] & known[:-d] & (of[d:] == of[:-d])
    correlation = float((rest[d:] * rest[:-d])[pairs].mean()) / variance if pairs.any() else 0.0
    return (1.0 + correlation) / max(1.0 - correlation, 1e-9)


def _chance(value: float, degrees: int) -> float:
    from scipy.special import chdtrc

    return float(chdtrc(degrees, value))
