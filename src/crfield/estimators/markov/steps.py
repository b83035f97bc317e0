"""Scores of single steps of hidden Markov models: log densities of the columns of a step.

The families that are formulas and tables (`crfield.scoring.densities`) can be exported, and say here how a program
computes them: independent normal columns, normal columns with covariances, mixtures, symbols. A column that is
missing (NaN) is summed out: the density is that of the columns that are there. Words and estimators of densities
are asked row by row and cannot be exported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.states import StateSpace
from crfield.data.large import ADVICE, ROOM
from crfield.errors import FeatureError
from crfield.estimators.export.columns import dense_names, is_dense
from crfield.estimators.export.states import StateSteps, check_size
from crfield.estimators.export.step_scores import (
    Scoring,
    SequenceSteps,
    StepScorer,
    hashed,
    observed_or_missing,
    single_steps,
)
from crfield.estimators.export.written import Written, forward_scores
from crfield.features.encoder import Encoder
from crfield.kernels.probabilities import log_sum
from crfield.scoring.densities.categorical import Categorical
from crfield.scoring.densities.full import FullGaussian
from crfield.scoring.densities.gaussian import DiagonalGaussian, most_deviant
from crfield.scoring.densities.mixture import GaussianMixtures
from crfield.training.markov.em import Markov

_LOG_2PI = float(np.log(2 * np.pi))

_GAUSSIAN = """\
  for (int j = 0; j < NAME_SCORES; j++) {
    score[j] = NAME_bias[j];
    for (int d = 0; d < NAME_COLUMNS; d++) {
      double z = (x[d] - NAME_mean[d * NAME_SCORES + j]) / NAME_deviation[d * NAME_SCORES + j];
      score[j] -= isnan(x[d]) ? NAME_norm[d * NAME_SCORES + j] : 0.5 * z * z;
    }
  }"""

_PYTHON_GAUSSIAN = """\
    score = list(BIAS)
    for value, mean, deviation, norm in zip(x, MEAN, DEVIATION, NORM):
        for j in range(SCORES):
            z = (value - mean[j]) / deviation[j]
            score[j] -= norm[j] if value != value else 0.5 * z * z"""

_MIXTURE = """\
  for (int j = 0; j < NAME_SCORES; j++) {
    double part[NAME_COMPONENTS], top = -INFINITY, sum = 0.0;
    for (int k = 0; k < NAME_COMPONENTS; k++) {
      int at = (j * NAME_COMPONENTS + k) * NAME_COLUMNS;
      part[k] = NAME_bias[j * NAME_COMPONENTS + k];
      for (int d = 0; d < NAME_COLUMNS; d++) {
        double z = (x[d] - NAME_mean[at + d]) / NAME_deviation[at + d];
        part[k] -= isnan(x[d]) ? NAME_norm[at + d] : 0.5 * z * z;
      }
      top = part[k] > top ? part[k] : top;
    }
    for (int k = 0; k < NAME_COMPONENTS; k++) sum += exp(part[k] - top);
    score[j] = top > -INFINITY ? top + log(sum) : top;
  }"""

_PYTHON_MIXTURE = """\
    score = []
    for j in range(SCORES):
        part = list(BIAS[j])
        for k in range(COMPONENTS):
            for value, mean, deviation, norm in zip(x, MEAN[j][k], DEVIATION[j][k], NORM[j][k]):
                z = (value - mean) / deviation
                part[k] -= norm if value != value else 0.5 * z * z
        score.append(log_sum(part))"""

_FULL = """\
  int seen[NAME_COLUMNS], count = 0;
  double work[NAME_COLUMNS * NAME_COLUMNS], away[NAME_COLUMNS];
  for (int d = 0; d < NAME_COLUMNS; d++)
    if (!isnan(x[d])) seen[count++] = d;
  for (int j = 0; j < NAME_SCORES; j++) {
    const double *factor = NAME_factor + j * NAME_COLUMNS * NAME_COLUMNS;
    double squares = 0.0, logs = 0.0;
    if (count < NAME_COLUMNS) { /* the Cholesky factor of the columns that are there */
      for (int a = 0; a < count; a++)
        for (int b = 0; b <= a; b++) {
          double value = NAME_covariance[(j * NAME_COLUMNS + seen[a]) * NAME_COLUMNS + seen[b]];
          for (int k = 0; k < b; k++) value -= work[a * NAME_COLUMNS + k] * work[b * NAME_COLUMNS + k];
          work[a * NAME_COLUMNS + b] = a == b ? sqrt(value) : value / work[b * NAME_COLUMNS + b];
        }
      factor = work;
    }
    for (int a = 0; a < count; a++) {
      double value = x[seen[a]] - NAME_mean[j * NAME_COLUMNS + seen[a]];
      for (int b = 0; b < a; b++) value -= factor[a * NAME_COLUMNS + b] * away[b];
      away[a] = value / factor[a * NAME_COLUMNS + a];
      squares += away[a] * away[a];
      logs += log(factor[a * NAME_COLUMNS + a]);
    }
    score[j] = -0.5 * squares - logs - 0.5 * count * @log_2pi@;
  }"""

_PYTHON_FULL = """\
    seen = [d for d in range(len(x)) if x[d] == x[d]]
    score = []
    for mean, factor, covariance in zip(MEAN, FACTOR, COVARIANCE):
        if len(seen) < len(x):  # the Cholesky factor of the columns that are there
            factor = []
            for a in seen:
                row = []
                for b in seen[: len(factor)]:
                    other = factor[len(row)]
                    row.append((covariance[a][b] - sum([p * q for p, q in zip(row, other)])) / other[-1])
                row.append(sqrt(covariance[a][a] - sum([p * p for p in row])))
                factor.append(row)
        away, logs = [], 0.0
        for a, row in zip(seen, factor):
            value = x[a] - mean[a]
            for part, known in zip(row, away):
                value -= part * known
            away.append(value / row[len(away)])
            logs += log(row[len(away) - 1])
        score.append(-0.5 * sum([value * value for value in away]) - logs - 0.5 * len(seen) * @log_2pi@)"""

_SYMBOLS = """\
  for (int j = 0; j < NAME_SCORES; j++) score[j] = 0.0;
  for (int d = 0; d < NAME_COLUMNS; d++) {
    int width = NAME_offsets[d + 1] - NAME_offsets[d];
    if (!(x[d] >= 0.0 && x[d] < width) || x[d] != floor(x[d])) continue; /* never seen: it says nothing */
    const double *log_share = NAME_logs + (NAME_offsets[d] + (int)x[d]) * NAME_SCORES;
    for (int j = 0; j < NAME_SCORES; j++) score[j] += log_share[j];
  }"""

_PYTHON_SYMBOLS = """\
    score = [0.0] * SCORES
    for d in range(len(x)):
        if 0 <= x[d] < OFFSETS[d + 1] - OFFSETS[d] and x[d] == int(x[d]):  # others were never seen and say nothing
            score = [a + b for a, b in zip(score, LOGS[OFFSETS[d] + int(x[d])])]"""


class DensitySteps:
    """What the scorers of all families share: the chain around the densities."""

    transitions: np.ndarray  # (L, L)
    start: np.ndarray  # (L,)
    end: np.ndarray  # (L,)
    names: tuple[str, ...] | None

    varied, reach, states = False, 0, None
    kind = ""

    @property
    def n_columns(self) -> int:
        """D."""
        raise NotImplementedError

    def _density(self, x: np.ndarray) -> np.ndarray:
        """(k, L) log p(x | label) of rows (k, D), without columns that are NaN."""
        raise NotImplementedError

    def _farthest(self, row: np.ndarray) -> int | None:
        """The column that no label was ever near to; None where densities of zero are meant."""
        raise NotImplementedError

    def score(self, rows: Sequence[Any], pasts: Sequence[Sequence[Any]]) -> tuple[np.ndarray, np.ndarray | None]:
        """Scores of rows (k, D)."""
        x = observed_or_missing(rows, self.n_columns)
        with np.errstate(over="ignore", invalid="ignore"):
            node = self._density(x)
        lost = ~(node >= -ROOM)
        if lost.any():
            row = int(lost.all(axis=1).argmax())
            column = self._farthest(np.nan_to_num(x[row])) if lost[row].all() else None
            if column is not None:
                name = f"x[{column}]" if self.names is None else self.names[column]
                raise FeatureError(
                    f"sequence {row}, step 0: feature {name!r} is {x[row, column]:.6g}, so far from what every label "
                    f"was seen with that no density has a number for it. {ADVICE}."
                )
            node[lost] = -np.inf
        return node, None

    def _own_tables(self) -> dict[str, np.ndarray]:
        raise NotImplementedError

    def tables(self) -> dict[str, np.ndarray]:
        """Every number of the model, by name."""
        chain = {"transitions": self.transitions, "start": self.start, "end": self.end}
        return {**self._own_tables(), **chain}

    def digest(self) -> str:
        """A word that differs between models."""
        return hashed([self.kind], list(self.tables().values()))


@dataclass(frozen=True, eq=False)
class GaussianSteps(DensitySteps):
    """Independent normal columns given the label.

        node(j) = bias(j) − ½ Σ_d ((x_d − mean(d, j)) / deviation(d, j))²

    ``bias`` holds the rest of the log density. Squares stay about the means, so that nothing cancels. A missing cell
    (NaN) takes neither its square nor its part of the bias.

    >>> import numpy as np
    >>> steps = GaussianSteps(np.array([[0.0, 2.0]]), np.ones((1, 2)), np.zeros(2), np.zeros((2, 2)), np.zeros(2))
    >>> steps.score([[2.0]], [[]])[0].tolist()
    [[-2.0, 0.0]]
    """

    kind = "gaussian"

    mean: np.ndarray  # (D, L)
    deviation: np.ndarray  # (D, L), positive
    bias: np.ndarray  # (L,)
    transitions: np.ndarray  # (L, L)
    start: np.ndarray  # (L,)
    end: np.ndarray = None  # type: ignore[assignment]  # (L,)
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.end is None:
            object.__setattr__(self, "end", np.zeros(len(self.start)))

    @property
    def n_columns(self) -> int:
        """D."""
        return len(self.mean)

    @property
    def norm(self) -> np.ndarray:
        """(D, L) what each column has in the bias, −log σ − ½ log 2π: a missing one must not have it."""
        return -np.log(self.deviation) - 0.5 * _LOG_2PI

    def _density(self, x: np.ndarray) -> np.ndarray:
        away = 0.5 * ((x[:, :, None] - self.mean) / self.deviation) ** 2
        gone = np.isnan(x)
        if gone.any():
            away = np.where(gone[:, :, None], self.norm, away)
        return self.bias - away.sum(axis=1)

    def _farthest(self, row: np.ndarray) -> int | None:
        return most_deviant(row, self.mean.T, self.deviation.T)

    def _own_tables(self) -> dict[str, np.ndarray]:
        return {"mean": self.mean, "deviation": self.deviation, "bias": self.bias, "norm": self.norm}

    def written(self) -> Written:
        """How a step is scored."""
        return Written(_GAUSSIAN, _PYTHON_GAUSSIAN, 6 * self.mean.size, missing=True)


@dataclass(frozen=True, eq=False)
class FamilySteps(DensitySteps):
    """Densities that a family of emissions knows."""

    family: Any
    transitions: np.ndarray  # (L, L)
    start: np.ndarray  # (L,)
    end: np.ndarray  # (L,)
    names: tuple[str, ...] | None = None

    @property
    def n_columns(self) -> int:
        """D."""
        return self.family.n_columns

    def _farthest(self, row: np.ndarray) -> int | None:
        column: int | None = self.family.farthest(row)
        return column


@dataclass(frozen=True, eq=False)
class MixtureSteps(FamilySteps):
    """Mixtures of independent normal columns: log Σ_k exp(bias(j, k) − ½ Σ_d z²)."""

    kind = "mixture"

    family: GaussianMixtures

    @property
    def norm(self) -> np.ndarray:
        """(L, K, D) what each column has in the bias."""
        return -np.log(self.family.deviation) - 0.5 * _LOG_2PI

    @property
    def bias(self) -> np.ndarray:
        """(L, K) log weight of each component, and the norms of its columns."""
        with np.errstate(divide="ignore"):
            return np.log(self.family.weight) + self.norm.sum(axis=2)

    def _density(self, x: np.ndarray) -> np.ndarray:
        family, cells = self.family, x[:, None, None, :]
        away = 0.5 * ((cells - family.mean) / family.deviation) ** 2
        return log_sum(self.bias - np.where(np.isnan(cells), self.norm, away).sum(axis=3), axis=2)

    def _own_tables(self) -> dict[str, np.ndarray]:
        family = self.family
        return {"mean": family.mean, "deviation": family.deviation, "bias": self.bias, "norm": self.norm}

    def written(self) -> Written:
        """How a step is scored."""
        labels, size, columns = self.family.mean.shape
        cost = labels * (size * (6 * columns + 1) + forward_scores(size))
        return Written(_MIXTURE, _PYTHON_MIXTURE, cost, {"COMPONENTS": size}, missing=True)


@dataclass(frozen=True, eq=False)
class FullSteps(FamilySteps):
    """Normal columns with covariances: −½ |F⁻¹ (x − μ)|² − log |F| − ½ D log 2π, F the Cholesky factor of a label."""

    kind = "full"

    family: FullGaussian

    def _density(self, x: np.ndarray) -> np.ndarray:
        gone = np.isnan(x)
        if not gone.any():
            return self.family.log_density(x)
        out = np.empty((len(x), self.family.n_labels))
        for row, (cells, missing) in enumerate(zip(x, gone)):
            seen = np.flatnonzero(~missing)
            part = FullGaussian(self.family.mean[:, seen], self.family.covariance[:, seen][:, :, seen])
            out[row] = part.log_density(cells[None, seen])[0] if len(seen) else 0.0
        return out

    def _own_tables(self) -> dict[str, np.ndarray]:
        covariance = self.family.covariance
        return {"mean": self.family.mean, "covariance": covariance, "factor": np.linalg.cholesky(covariance)}

    def written(self) -> Written:
        """How a step is scored."""
        labels, size = self.family.mean.shape
        known = size * (size + 5)  # all columns are there: a triangle is solved
        less = size - 1  # one is missing: the factor of the others first
        factored = less * (less + 1) * (2 * less + 1) // 6 + less * (less + 5)
        cost = size + labels * (max(known, factored) + 5)
        told = repr(_LOG_2PI)
        c, python = _FULL.replace("@log_2pi@", told), _PYTHON_FULL.replace("@log_2pi@", told)
        return Written(c, python, cost, missing=True)


@dataclass(frozen=True, eq=False)
class SymbolSteps(FamilySteps):
    """Columns of symbols 0, 1, 2 …: Σ_d log θ_d(j, x_d); a symbol that was never seen says nothing."""

    kind = "categorical"

    family: Categorical

    def _density(self, x: np.ndarray) -> np.ndarray:
        return self.family.log_density(x)

    def _farthest(self, row: np.ndarray) -> int | None:
        return None

    def _own_tables(self) -> dict[str, np.ndarray]:
        logs = np.ascontiguousarray(self.family.natural()[0])
        return {"logs": logs, "offsets": self.family.offsets.astype(np.int32)}

    def written(self) -> Written:
        """How a step is scored."""
        cost = self.n_columns * (4 + self.family.n_labels)
        return Written(_SYMBOLS, _PYTHON_SYMBOLS, cost, missing=True, zeros=True)


def density_steps(model: Scoring, encoder: Encoder, markov: Markov) -> StepScorer:
    """Scores of single steps of a hidden Markov model; of the states that make labels last where some must."""
    with np.errstate(divide="ignore"):
        start, transitions = np.log(markov.start), np.log(markov.transition)
    end, lasting = np.zeros(len(start)), markov.durations
    if lasting is None:
        return _label_steps(model, encoder, markov.emissions, start, transitions, end)
    states: StateSpace = lasting.states
    check_size(states.n_states, f"min_duration: {states.n_states:,} states of labels that last", "Lower it")
    inner = _label_steps(model, encoder, markov.emissions, start, transitions, end)
    # a model that is asked row by row scores states already
    parts = None if isinstance(inner, SequenceSteps) else states.label_of_state[:, None]
    with np.errstate(divide="ignore"):
        return StateSteps(
            inner,
            states,
            start=np.log(lasting.starts(markov.start)),
            end=np.zeros(states.n_states),
            transitions=np.log(lasting.transitions(markov.transition)),
            parts=parts,
        )


def _label_steps(
    model: Scoring, encoder: Encoder, emissions: Any, start: np.ndarray, transitions: np.ndarray, end: np.ndarray
) -> DensitySteps | SequenceSteps:
    family = type(emissions)
    if is_dense(encoder):
        names = dense_names(encoder)
        if family is DiagonalGaussian:
            bias = -np.log(emissions.deviation).sum(axis=1) - 0.5 * emissions.n_columns * _LOG_2PI
            mean, deviation = (np.ascontiguousarray(a.T) for a in (emissions.mean, emissions.deviation))
            return GaussianSteps(mean, deviation, bias, transitions, start, end, names)
        for kind, steps in ((GaussianMixtures, MixtureSteps), (FullGaussian, FullSteps), (Categorical, SymbolSteps)):
            if family is kind:
                return steps(emissions, transitions, start, end, names)
    why, more = None, []
    if emissions.kind != "density":
        more = list(emissions.to_arrays().values())
    else:  # code has no arrays that tell it from other code, but it has answers
        more = [emissions.log_density(np.random.default_rng(0).normal(size=(8, emissions.n_columns)))]
        why = (
            "an estimator of densities is code, which cannot be written to a file. Train with emissions='gaussian', "
            "'full', 'mixture' or 'categorical' to export."
        )
    if emissions.kind == "poisson":
        why = "Poisson emissions are not written to files. Train with another family to export."
    tables = {"start": start, "end": end, "transitions": transitions}
    return single_steps(model, tables, varied=False, window=0, more=more, why=why)
