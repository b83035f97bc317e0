"""Categorical and multinomial emissions: relative frequencies of values.

`Categorical` reads columns of whole numbers 0, 1, 2 …, each a variable of its own, independent given the label:

    log p(x | c) = Σ_d log θ_d[c, x_d]          θ_d[c, v] ∝ smoothing + weight of the steps of c with x_d = v

`Words` reads columns that say how often a word is there (strings, dicts of strings), and has one distribution over
all words for each label: log p(x | c) = Σ_k x_k log θ[c, k]. With one word a step that is the textbook's hidden
Markov model of words. A value or word that training has not seen says nothing of any label, and neither does a
missing value (NaN): its probabilities sum to one over all that it may have been.

Both are log-linear in indicators, with natural parameters log θ; free parameters are log θ up to a constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from crfield.errors import FeatureError, InputError, ModelFileError, ShapeError
from crfield.scoring.densities.gaussian import DEFAULTS, Fitting, Sums, check_mass, check_rows

MOST = 1_000_000  # values of all columns together
_LEAST = 1e-12  # the gradient of a share of zero is zero


class Shares:
    """What both families have in common: ``probability`` (L, V) in blocks of columns that sum to one."""

    probability: np.ndarray
    offsets: np.ndarray

    def __post_init__(self) -> None:
        probability = np.ascontiguousarray(self.probability, np.float64)
        offsets = np.ascontiguousarray(self.offsets, np.int64)
        if offsets.ndim != 1 or not len(offsets) or offsets[0] != 0 or (np.diff(offsets) < 1).any():
            raise ShapeError(f"every column needs a value, got the offsets {offsets.tolist()[:6]}.")
        if probability.ndim != 2 or not len(probability) or probability.shape[1] != offsets[-1]:
            raise ShapeError(f"probabilities must be (labels, {offsets[-1]}), got {probability.shape}.")
        sums = np.add.reduceat(probability, offsets[:-1], axis=1) if len(offsets) > 1 else np.ones((1, 1))
        if not (probability >= 0).all() or not np.allclose(sums, 1.0):
            raise InputError("probabilities must be non-negative and sum to one.")
        object.__setattr__(self, "probability", probability)
        object.__setattr__(self, "offsets", offsets)

    @property
    def n_labels(self) -> int:
        """L."""
        return len(self.probability)

    def statistics(self, rows: np.ndarray) -> np.ndarray:
        """(N, V) how often each value is there; nothing for one that was never seen."""
        raise NotImplementedError

    @classmethod
    def _made(cls, probability: np.ndarray, offsets: np.ndarray) -> Self:
        return cls(probability, offsets)  # type: ignore[call-arg]

    @classmethod
    def _counted(cls, counts: np.ndarray, offsets: np.ndarray, fitting: Fitting) -> Self:
        seen = counts.sum(axis=0) > 0
        # A value between others that nobody has shown gets no smoothing: it is as unknown as any other.
        smooth = counts + np.where(seen, fitting.smoothing, 0.0)
        total = np.repeat(np.add.reduceat(smooth, offsets[:-1], axis=1), np.diff(offsets), axis=1)
        width = np.repeat(np.add.reduceat(seen.astype(float), offsets[:-1]), np.diff(offsets))
        flat = np.where(seen, 1.0 / np.maximum(width, 1.0), 0.0)
        return cls._made(np.where(total > 0, smooth / np.where(total > 0, total, 1.0), flat), offsets)

    def refit(self, rows: np.ndarray, responsibility: np.ndarray, fitting: Fitting = DEFAULTS) -> Self:
        """Weighted counts; a label that no row speaks for keeps its shares."""
        return self.refitted(self.gathered(rows, responsibility, fitting), fitting)

    def gathered(self, rows: np.ndarray, responsibility: np.ndarray, fitting: Fitting) -> Sums:
        """Counts (L, V) of values, and how much of all rows each label has (L,)."""
        return responsibility.T @ self.statistics(rows), responsibility.sum(axis=0)

    def refitted(self, sums: Sums, fitting: Fitting) -> Self:
        """The shares of these counts."""
        made = self._counted(sums[0], self.offsets, fitting)
        alive = sums[1][:, None] > 0
        return self._made(np.where(alive, made.probability, self.probability), self.offsets)

    def log_prior(self, fitting: Fitting) -> float:
        """smoothing · Σ log θ over values that were seen."""
        if not fitting.smoothing:
            return 0.0
        return float(fitting.smoothing * np.log(self.probability[:, self.probability.any(axis=0)]).sum())

    def farthest(self, row: np.ndarray) -> int:
        """The column whose value most labels never have."""
        return int(self._forbidding(row).argmax())

    def _forbidding(self, row: np.ndarray) -> np.ndarray:
        """(D,) how many labels never have the value of each column of a row (D,)."""
        raise NotImplementedError

    def _logs(self) -> np.ndarray:
        """(L, V) log θ, 0 for a value that no label has."""
        with np.errstate(divide="ignore"):
            return np.where(self.probability.any(axis=0), np.log(self.probability), 0.0)

    def widened(self, factor: float) -> Self:
        """The same with log θ divided by factor², as a wider normal density has it.

        >>> Words(np.array([[0.8, 0.2]]), np.array([0, 2])).widened(2.0).probability.round(3).tolist()
        [[0.586, 0.414]]
        """
        if factor == 1.0:
            return self
        seen = self.probability.any(axis=0)
        flat = np.where(seen, self.probability ** (factor**-2.0), 0.0)
        total = np.repeat(np.add.reduceat(flat, self.offsets[:-1], axis=1), np.diff(self.offsets), axis=1)
        return self._made(flat / total, self.offsets)

    # ---------------------------------------------------------------- log-linear form

    def natural(self) -> tuple[np.ndarray, np.ndarray]:
        """(V, L) log θ, and offsets (L,) of zero."""
        return self._logs().T, np.zeros(self.n_labels)

    def free(self) -> np.ndarray:
        """(L V,) log θ."""
        return np.log(np.maximum(self.probability, _LEAST)).ravel()

    def with_free(self, free: np.ndarray) -> Self:
        """The family with other log θ, brought to sums of one."""
        scores = free.reshape(self.probability.shape)
        widths = np.diff(self.offsets)
        top = np.repeat(np.maximum.reduceat(scores, self.offsets[:-1], axis=1), widths, axis=1)
        parts = np.exp(scores - top)
        return self._made(
            parts / np.repeat(np.add.reduceat(parts, self.offsets[:-1], axis=1), widths, axis=1), self.offsets
        )

    def pull(self, natural: np.ndarray, offset: np.ndarray) -> np.ndarray:
        """g − θ Σ g within every column."""
        slope = natural.T
        sums = np.repeat(np.add.reduceat(slope, self.offsets[:-1], axis=1), np.diff(self.offsets), axis=1)
        return np.asarray((slope - self.probability * sums).ravel())

    @staticmethod
    def units(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Symbols have no scale: 0 and 1."""
        return np.zeros(rows.shape[1]), np.ones(rows.shape[1])

    def moved(self, shift: np.ndarray, unit: np.ndarray) -> Self:
        """Itself: symbols do not move."""
        return self

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Shares, and where each column's begin."""
        return {"probability": self.probability, "offsets": self.offsets}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], *, n_labels: int) -> Self:
        """The family of a model file; ModelFileError where it is damaged."""
        probability, offsets = arrays.get("probability"), arrays.get("offsets")
        if (
            probability is None
            or offsets is None
            or probability.dtype != np.float64
            or offsets.dtype != np.int64
            or len(probability) != n_labels
        ):
            raise ModelFileError(f"shares of {n_labels} labels are missing or damaged.")
        try:
            return cls._made(probability, offsets)
        except InputError as error:
            raise ModelFileError(f"the model file's shares cannot be used: {error} Was it edited?") from None


@dataclass(frozen=True, eq=False)
class Categorical(Shares):
    """Categorical columns (integers ≥ 0), independent given the label.

    >>> family = Categorical.fit(np.array([[0.0], [1.0], [1.0]]), np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    >>> family.probability.round(3).tolist()
    [[0.5, 0.5], [0.333, 0.667]]
    >>> family.log_density(np.array([[9.0]])).tolist()
    [[0.0, 0.0]]
    """

    kind = "categorical"
    marginalises = True

    probability: np.ndarray  # (L, V), V values of all columns
    offsets: np.ndarray  # (D + 1,) int64

    @property
    def n_columns(self) -> int:
        """D."""
        return len(self.offsets) - 1

    @classmethod
    def fit(cls, rows: np.ndarray, responsibility: np.ndarray, fitting: Fitting = DEFAULTS) -> Self:
        """Smoothed shares of each label, of values that were observed; LabelError for one that no row speaks for."""
        check_mass(responsibility.sum(axis=0))
        rows, responsibility = _whole(rows), np.asarray(responsibility)
        widths = rows.max(axis=0, initial=0) + 1
        if widths.sum() > MOST:
            raise FeatureError(
                f"categorical columns must hold integers ≥ 0 without large gaps, got {int(rows.max())}. "
                "Number the values 0, 1, 2 …, or use another family for measurements."
            )
        offsets = np.concatenate([[0], np.cumsum(widths)])
        counts = np.concatenate(
            [
                np.stack([np.bincount(rows[seen, d], own[seen], widths[d]) for own in responsibility.T])
                for d, seen in enumerate(rows.T >= 0)
            ],
            axis=1,
        )
        return cls._counted(counts, offsets, fitting)

    def gathered(self, rows: np.ndarray, responsibility: np.ndarray, fitting: Fitting) -> Sums:
        """Counts (L, V) of values, and how much of all rows each label has (L,)."""
        where = self._places(rows)
        counts = np.zeros_like(self.probability)
        for d in range(self.n_columns):
            known = where[:, d] >= 0
            for c in range(self.n_labels):
                counts[c] += np.bincount(where[known, d], responsibility[known, c], counts.shape[1])
        return counts, responsibility.sum(axis=0)

    def _places(self, rows: np.ndarray) -> np.ndarray:
        """(N, D) the place of every value, −1 for unknown and missing ones."""
        rows = check_rows(rows, self.n_columns)
        known = (rows >= 0) & (rows < np.diff(self.offsets)) & (rows == np.floor(rows))
        return np.where(known, np.where(known, rows, 0).astype(np.int64) + self.offsets[:-1], -1)

    def statistics(self, rows: np.ndarray) -> np.ndarray:
        """(N, V) indicators of values."""
        where = self._places(rows)
        out = np.zeros((len(where), int(self.offsets[-1])))
        n, d = np.nonzero(where >= 0)
        out[n, where[n, d]] = 1.0
        return out

    def log_density(self, rows: np.ndarray, *, n_jobs: int = 1) -> np.ndarray:
        """(N, L) of rows (N, D)."""
        where = self._places(rows)
        logs = np.concatenate([self._logs().T, np.zeros((1, self.n_labels))])
        out = np.zeros((len(where), self.n_labels))
        for d in range(self.n_columns):
            out += logs[where[:, d]]
        return out

    def _forbidding(self, row: np.ndarray) -> np.ndarray:
        places = self._places(row[None])[0]
        return np.where(places >= 0, np.isneginf(self._logs()).sum(axis=0)[places], 0)

    def sample(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(N, D) rows drawn for labels (N,)."""
        out = np.empty((len(labels), self.n_columns))
        for d, (a, b) in enumerate(zip(self.offsets[:-1], self.offsets[1:])):
            out[:, d] = _drawn(self.probability[:, a:b], labels, rng)
        return out

    def frame(self) -> tuple[np.ndarray, np.ndarray]:
        """Symbols have no scale: 0 and 1."""
        return np.zeros(self.n_columns), np.ones(self.n_columns)


@dataclass(frozen=True, eq=False)
class Words(Shares):
    """Multinomial: one distribution over all columns, which hold the counts of their words.

    >>> family = Words.fit(np.array([[1.0, 0.0], [0.0, 1.0]]), np.ones((2, 1)))
    >>> family.log_density(np.array([[1.0, 0.0]])).round(3).tolist()
    [[-0.693]]
    """

    kind = "words"
    marginalises = False  # nothing says how often a word that was not counted is there

    probability: np.ndarray  # (L, K)
    offsets: np.ndarray  # (2,) int64

    @property
    def n_columns(self) -> int:
        """K."""
        return int(self.probability.shape[1])

    @classmethod
    def fit(cls, rows: np.ndarray, responsibility: np.ndarray, fitting: Fitting = DEFAULTS) -> Self:
        """Smoothed shares of each label; LabelError for one that no row speaks for."""
        rows = np.asarray(rows, np.float64)
        check_mass(responsibility.sum(axis=0))
        if (rows < 0).any():
            raise FeatureError("words are counted, so columns must be non-negative. Use another family for numbers.")
        return cls._counted(responsibility.T @ rows, np.array([0, rows.shape[1]]), fitting)

    def statistics(self, rows: np.ndarray) -> np.ndarray:
        """The row itself."""
        return check_rows(rows, self.n_columns)

    def log_density(self, rows: np.ndarray, *, n_jobs: int = 1) -> np.ndarray:
        """(N, L) of rows (N, K); an impossible word that is not there forbids nothing."""
        rows, logs = self.statistics(rows), self._logs()
        finite = np.where(np.isneginf(logs), 0.0, logs)
        out = rows @ finite.T
        return np.where((rows > 0) @ np.isneginf(logs).T, -np.inf, out)

    def _forbidding(self, row: np.ndarray) -> np.ndarray:
        return np.where(row > 0, np.isneginf(self._logs()).sum(axis=0), 0)

    def sample(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(N, K) one word for each label."""
        return np.eye(self.n_columns)[_drawn(self.probability, labels, rng)]

    def frame(self) -> tuple[np.ndarray, np.ndarray]:
        """Words have no scale: 0 and 1."""
        return np.zeros(self.n_columns), np.ones(self.n_columns)


def _whole(rows: np.ndarray) -> np.ndarray:
    """Values as integers, −1 for missing ones."""
    rows = np.asarray(rows, np.float64)
    missing = np.isnan(rows)
    good = missing | (rows >= 0) & (rows == np.floor(rows)) & (rows < 2**53)
    if not good.all():
        n, d = np.unravel_index(int(np.argmin(good)), rows.shape)
        raise FeatureError(
            f"categorical columns must hold integers ≥ 0, got {rows[n, d]} in column {d}. "
            "Use emissions='gaussian' or another family for measurements."
        )
    return np.where(missing, -1.0, rows).astype(np.int64)


def _drawn(shares: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    bounds = np.cumsum(shares, axis=1)[labels]
    place = (rng.random((len(labels), 1)) * bounds[:, -1:] >= bounds).sum(axis=1)
    return np.minimum(place, shares.shape[1] - 1)
