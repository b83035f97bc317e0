"""`ContinuousCRF`: a conditional random field of real-valued labels, on sequences or graphs.

    p(y | x) ∝ exp( −½ Σ_n Σ_k α_k (y_n − r_k(x_n))² − ½ Σ_e β_e (y_tail − y_head)² )

Given x this is a Gaussian: its mean is a regression that was smoothed along the edges as strongly as the data ask
for, and its variance says how sure it is at each node, more so where many neighbours agree. All precisions are
positive by parametrisation, inference is exact, and training is maximum likelihood (Qin, Liu, Zhang, Wang & Li
2008, *Global ranking using continuous conditional random fields*; Radosavljevic, Vucetic & Obradovic 2010,
*Continuous conditional random fields for regression in remote sensing*).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Self

import numpy as np

from crfield.core.checks import flag, one_of, share
from crfield.core.estimator import RegressorMixin
from crfield.core.parameters import parameter
from crfield.core.quadratic import Gaussian, Quadratic
from crfield.core.target import check_weights
from crfield.core.typing import Graphlike, Labels, Parameters, Weights
from crfield.data.batch import Columns
from crfield.data.graphs.batch import GraphBatch
from crfield.data.large import refuse_large
from crfield.errors import InputError, LabelError, ShapeError
from crfield.estimators.base.fitted import Fitted
from crfield.estimators.base.groups import MIN_COUNT, PENALTY, TOLERANCE, Optimised
from crfield.estimators.base.sequences import StructuredData, without_weightless
from crfield.estimators.export.step_scores import StepScorer
from crfield.estimators.export.streaming import Streaming
from crfield.features.graphs.sequences_as_graphs import StepsOrGraphs
from crfield.inference.gaussian import GaussianEngine
from crfield.objectives.gaussian import clamp
from crfield.scoring.quadratic import ASSOCIATIONS, QuadraticScorer
from crfield.storage.state import State, refuse
from crfield.training.gaussian import GaussianProblem, curvature, fit_gaussian, standard_errors


@dataclass(frozen=True, eq=False)
class ContinuousModel:
    """How X is read, the scorer and its weights, and the scale of the labels: a label is centre + scale · y."""

    reader: StepsOrGraphs
    scorer: QuadraticScorer
    weights: np.ndarray
    centre: float
    scale: float
    errors: np.ndarray | None  # standard errors of the weights

    def field(self, X: Graphlike) -> tuple[Quadratic, GraphBatch]:
        """The field of X for labels of deviation 1."""
        batch = self.reader.encode(X)
        refuse_large(batch, self.reader.encoder, doing="be scored", sequences=not self.reader.of_graphs)
        return self.scorer.score(self.weights, in_units(batch, self.scorer, self.scale)), batch

    def standard(self, labels: np.ndarray) -> np.ndarray:
        """Labels of the user as the field has them."""
        return (labels - self.centre) / self.scale

    def usual(self, labels: np.ndarray) -> np.ndarray:
        """Labels of the field in the user's units."""
        return labels * self.scale + self.centre

    def state(self) -> State:
        """Header and arrays."""
        arrays = {"weights": self.weights} | ({} if self.errors is None else {"errors": self.errors})
        state = State({"labels": {"centre": self.centre, "scale": self.scale}}, arrays)
        return state.with_part("reader", self.reader.state(), arrays="encoder")

    @classmethod
    def from_state(cls, state: State, parameters: Parameters) -> Self:
        """The value whose `state` this is; ModelFileError for whatever does not fit."""
        part = state.part("reader", arrays="encoder")
        reader = StepsOrGraphs.from_state(part.header, dict(part.arrays))
        scorer = scorer_of(parameters["association"], reader, reader.encode([]))
        weights = state.array("weights", (scorer.n_weights,))
        errors = state.array("errors", weights.shape, finite=False) if "errors" in state.arrays else None
        labels = state.part("labels").header
        centre, scale = labels.get("centre"), labels.get("scale")
        if not isinstance(centre, float) or not isinstance(scale, float):
            refuse("the scale of the labels is missing")
        if not isfinite(centre) or not 0 < scale < 1e308:
            refuse("the scale of the labels must be finite")
        return cls(reader, scorer, weights, centre, scale, errors)


class ContinuousCRF(
    Streaming,
    StructuredData,
    RegressorMixin,
    Fitted[ContinuousModel],
    Optimised,
    kind="continuous_crf",
    model=ContinuousModel,
):
    """Gaussian conditional random field for regression on sequences and graphs.

    X is a list of sequences (2-D arrays, CSR matrices, dicts or lists of strings for every step) or of `Graph`; y has
    one array of numbers for each, in which ``None`` or NaN is unknown and is integrated out.

    Parameters
    ----------
    association : "linear" or "columns"
        What features say of a label: one linear prediction of all columns, whose coefficients are learnt, or a
        prediction of the label in every column, whose precisions are.
    l2 : float
        Ridge on the coefficients, for labels of deviation 1.
    standardize : bool
        Bring numeric columns to mean 0 and deviation 1, as learnt in ``fit``; not for predictions in columns.
    min_count : int
        Columns seen on fewer steps are dropped.
    standard_errors : bool
        Also find standard errors, which takes two evaluations for each weight.
    tol : float
        Training stops when the objective is estimated to be within this fraction of its optimum.
    max_iter : int
        Most steps of the optimiser.
    verbose : int
        1 shows a progress line, 2 a line for every step.
    callback : callable(step, weights), optional
        Called after every step of the optimiser; returning True ends training.

    Attributes
    ----------
    coef_, intercept_ : (K,) array, float
        The linear prediction; empty and 0 for predictions in columns.
    association_ : (1,) or (K,) array
        Precisions α, in the units of the labels.
    interaction_ : dict
        For each relation its precision β ("+1" in sequences); with columns on edges, of an edge whose columns are 0.
    standard_errors_ : dict
        Of "coef", "intercept", and of the logarithms "association" and "interaction" (a dict); None if not asked for.
    objective_, n_iter_, converged_, stop_reason_, history_
        The report of training.

    Examples
    --------
    >>> import numpy as np
    >>> from crfield import make_smooth_series
    >>> series = make_smooth_series(40, length=60, random_state=0)
    >>> model = ContinuousCRF().fit(series.features[:20], series.labels[:20])
    >>> model.predict(series.features[20:])[0].shape, round(model.score(series.features[20:], series.labels[20:]), 1)
    ((60,), 0.5)
    >>> low, high = model.predict_intervals(series.features[20:])[0].T
    >>> bool((low < high).all())
    True
    """

    association: str = parameter(one_of(*ASSOCIATIONS), default="linear")
    l2: float = parameter(PENALTY, default=1.0)
    standardize: bool = parameter(flag, default=False)
    min_count: int = parameter(MIN_COUNT, default=1)
    standard_errors: bool = parameter(flag, default=True)
    tol: float = parameter(TOLERANCE, default=1e-8)

    reported = ("objective_", "n_iter_", "converged_", "stop_reason_")

    def _check_together(self) -> None:
        if self.association == "columns" and self.standardize:
            raise InputError("columns that predict the labels have the labels' units: leave out standardize.")

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Graphlike, y: Labels, sample_weight: Weights = None) -> Self:
        """Learn coefficients and precisions; ``sample_weight`` has one number for each sequence or graph."""
        self.check()
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        reader = StepsOrGraphs(standardize=self.standardize)
        batch = reader.fit(X, min_count=self.min_count)
        refuse_large(batch, reader.encoder, sequences=not reader.of_graphs)
        if len(reader.schema.kinds) > 1:
            raise InputError("all nodes must be of one kind, since all labels are numbers of one scale.")
        labels = real_labels(y, batch)
        weight = None if sample_weight is None else check_weights(sample_weight, batch.n_graphs)
        centre, scale = _centre_and_scale(labels)
        centre = centre if self.association == "linear" else 0.0
        scorer = scorer_of(self.association, reader, batch)
        problem = GaussianProblem(scorer, in_units(batch, scorer, scale), (labels - centre) / scale, weight=weight)
        l2, max_iter = float(self.l2), int(self.max_iter)
        with self._watched() as after:
            result = fit_gaussian(problem, l2=l2, tol=self.tol, max_iter=max_iter, callback=after)
        errors = standard_errors(curvature(problem, result.weights, l2=l2)) if self.standard_errors else None
        result = replace(result, value=result.value - problem.shift)
        self._learn(ContinuousModel(reader, scorer, result.weights, centre, scale, errors), result)
        self._warn_unless_converged(result, "Raise max_iter or tol")
        return self

    # --------------------------------------------------------------- prediction

    def _moments(self, X: Graphlike) -> tuple[Gaussian, GraphBatch]:
        field, batch = self._fitted.field(X)
        return GaussianEngine().infer(field), batch

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        self._fitted  # noqa: B018  (says so where nothing is fitted)
        raise InputError(
            "ContinuousCRF cannot stream: it predicts numbers of whole sequences, each from the steps before "
            "and after. Use predict; ChainCRF, TreeCRF and HMM stream labels."
        )

    def predict(self, X: Graphlike) -> np.ndarray:
        """The mean of every label: a 1-D object array with one float array for each sequence or graph."""
        found, batch = self._moments(X)
        return _split(self._fitted.usual(found.mean), batch)

    def predict_std(self, X: Graphlike) -> np.ndarray:
        """The deviation of every label around its mean, in the form of `predict`."""
        found, batch = self._moments(X)
        return _split(np.sqrt(found.variance) * self._fitted.scale, batch)

    def predict_intervals(self, X: Graphlike, *, coverage: float = 0.9) -> np.ndarray:
        """Central intervals that hold each label with the probability ``coverage``: arrays (nodes, 2), low and high.

        Weights are taken as known, so that with little training data intervals are somewhat narrow.
        """
        share("the probability that a label lies within")("coverage", coverage)
        from scipy.special import ndtri

        found, batch = self._moments(X)
        reach = float(ndtri(0.5 + 0.5 * coverage)) * np.sqrt(found.variance) * self._fitted.scale
        mean = self._fitted.usual(found.mean)
        return _split(np.stack([mean - reach, mean + reach], axis=1), batch)

    def impute(self, X: Graphlike, y: Labels) -> np.ndarray:
        """Labels with the unknown ones (None or NaN) filled in by their mean given the known ones."""
        model = self._fitted
        field, batch = model.field(X)
        filled = clamp(field, model.standard(real_labels(y, batch)), GaussianEngine()).mean
        return _split(model.usual(filled), batch)

    def log_prob(self, X: Graphlike, y: Labels) -> np.ndarray:
        """log p(y | x) of every sequence or graph, (B,), a density; unknown labels are integrated out."""
        model = self._fitted
        field, batch = model.field(X)
        labels = model.standard(real_labels(y, batch))
        engine, topology = GaussianEngine(), batch.topology
        n_known = np.bincount(topology.sequence_of_node, ~np.isnan(labels), minlength=topology.n_sequences)
        total = clamp(field, labels, engine).total - engine.infer(field).total
        return total - np.log(model.scale) * n_known

    def score(self, X: Graphlike, y: Labels, sample_weight: Weights = None) -> float:
        """R², the share of the variance of all known labels that the means explain."""
        found, batch = self._moments(X)
        labels = real_labels(y, batch)
        weight = np.ones(len(labels))
        if sample_weight is not None:
            weight = np.repeat(check_weights(sample_weight, batch.n_graphs), batch.topology.lengths)
        weight = weight * ~np.isnan(labels)
        if not weight.any():
            return 0.0
        labels = np.where(weight > 0, labels, 0.0)
        left = float(weight @ (labels - self._fitted.usual(found.mean)) ** 2)
        around = float(weight @ (labels - weight @ labels / weight.sum()) ** 2)
        return 1.0 - left / around if around > 0 else float(left == 0)

    # -------------------------------------------------------------- explanation

    @property
    def coef_(self) -> np.ndarray:
        """(K,) coefficients of the linear prediction, read-only; of standardised columns where these are."""
        model = self._fitted
        coef = model.weights[model.scorer.part["coef"]] * model.scale
        coef.flags.writeable = False
        return coef

    @property
    def intercept_(self) -> float:
        """The constant of the linear prediction."""
        model = self._fitted
        return float(model.usual(model.weights[model.scorer.part["intercept"]].sum()))

    @property
    def association_(self) -> np.ndarray:
        """(1,) or (K,) precisions of the predictions."""
        model = self._fitted
        return np.exp(model.weights[model.scorer.part["association"]]) / model.scale**2

    @property
    def interaction_(self) -> dict[str, float]:
        """Precision of each relation."""
        model = self._fitted
        return {
            relation.name: float(np.exp(model.weights[model.scorer.relation(number).start]) / model.scale**2)
            for number, relation in enumerate(model.reader.schema.relations)
        }

    @property
    def standard_errors_(self) -> dict[str, Any] | None:
        """Standard errors of coefficients, of the intercept, and of the logarithms of precisions."""
        model = self._fitted
        scorer, errors = model.scorer, model.errors
        if errors is None:
            return None
        return {
            "coef": errors[scorer.part["coef"]] * model.scale,
            "intercept": float(errors[scorer.part["intercept"]].sum() * model.scale),
            "association": errors[scorer.part["association"]],
            "interaction": {
                relation.name: float(errors[scorer.relation(number).start])
                for number, relation in enumerate(model.reader.schema.relations)
            },
        }


def scorer_of(association: str, reader: StepsOrGraphs, batch: GraphBatch) -> QuadraticScorer:
    """The scorer of the columns that a reader makes."""
    width = batch.node.width + batch.node.n_dense
    if association == "columns" and not width:
        raise InputError("association='columns' needs at least one column that predicts the labels, got none.")
    edges = tuple(relation.n_columns + relation.n_dense for relation in reader.schema.relations)
    return QuadraticScorer(association, width, edges)


def in_units(batch: GraphBatch, scorer: QuadraticScorer, scale: float) -> GraphBatch:
    """The batch for labels of deviation 1: columns that predict labels have their units."""
    if scorer.association != "columns":
        return batch
    node = batch.node
    values = np.ones(len(node.indices)) if node.values is None else node.values
    dense = None if node.dense is None else node.dense / scale
    columns = Columns(node.indptr, node.indices, node.width, values / scale, dense)
    return GraphBatch(batch.topology, columns, batch.kind, batch.relation, batch.edge)


def _centre_and_scale(labels: np.ndarray) -> tuple[float, float]:
    """Mean and deviation of the labels that are known; 1 for a deviation that is none."""
    known = labels[~np.isnan(labels)]
    if not len(known):
        raise LabelError("y holds no known label at all; at least one is needed to train.")
    centre = known.mean()
    scale = float(np.sqrt(np.mean((known - centre) ** 2)))
    return float(centre), scale if scale > 1e-300 and isfinite(scale) else 1.0


def real_labels(y: Labels, batch: GraphBatch) -> np.ndarray:
    """(N,) the labels of a batch as numbers, NaN where unknown; errors name the place.

    >>> from crfield.core.graphs import Graphs
    >>> steps = Columns.from_rows([[], [], []], width=0)
    >>> batch = GraphBatch(Graphs([0, 2, 3], [0], [1]), steps, [0, 0, 0], [0], (None,))
    >>> real_labels([[1, None], [2.5]], batch).tolist()
    [1.0, nan, 2.5]
    """
    if isinstance(y, str | bytes) or not hasattr(y, "__len__") or len(y) != batch.n_graphs:
        got = f"{len(y)}" if hasattr(y, "__len__") else type(y).__name__
        raise ShapeError(
            f"y must have one list of numbers for each of {batch.n_graphs} sequences or graphs, got {got}."
        )
    chains = batch.topology
    out = np.empty(chains.n_nodes)
    for number, (some, length) in enumerate(zip(y, chains.lengths.tolist())):
        try:
            own = np.asarray(some, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise LabelError(f"labels of sequence {number} must be numbers or None: {error}.") from None
        if own.size != length:
            raise ShapeError(f"sequence {number} has {length} steps but {own.size} labels. Give each step its own.")
        own = own.reshape(-1)
        if np.isinf(own).any():
            step = int(np.argmax(np.isinf(own)))
            raise LabelError(f"sequence {number}, step {step}: a label must be finite, or None where unknown.")
        out[chains.offsets[number] : chains.offsets[number + 1]] = own
    return out


def _split(rows: np.ndarray, batch: GraphBatch) -> np.ndarray:
    out, offsets = np.empty(batch.n_graphs, dtype=object), batch.topology.offsets
    for number in range(len(out)):
        out[number] = rows[offsets[number] : offsets[number + 1]]
    return out
