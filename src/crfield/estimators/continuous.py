"""`ContinuousCRF`: a conditional random field of real-valued labels, on sequences or graphs.

    p(y | x) ∝ exp( −½ Σ_n Σ_k α_k (y_n − r_k(x_n))² − ½ Σ_e β_e (y_tail − y_head)² )

Given x this is a Gaussian: its mean is a regression that was smoothed along the edges as strongly as the data ask
for, and its variance says how sure it is at each node, more so where many neighbours agree. All precisions are
positive by parametrisation, inference is exact, and training is maximum likelihood (Qin, Liu, Zhang, Wang & Li
2008, *Global ranking using continuous conditional random fields*; Radosavljevic, Vucetic & Obradovic 2010,
*Continuous conditional random fields for regression in remote sensing*).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from math import isfinite
from numbers import Integral, Real
from typing import Any, Self

import numpy as np

from crfield.core.estimator import Estimator, RegressorMixin
from crfield.core.quadratic import Gaussian, Quadratic
from crfield.core.topology import Chains
from crfield.data.batch import Columns
from crfield.data.graphs.batch import GraphBatch
from crfield.data.large import refuse_large
from crfield.errors import ConvergenceWarning, InputError, LabelError, NotFittedError, ShapeError
from crfield.estimators.base.progress import Progress
from crfield.estimators.base.sequences import check_weights, without_weightless
from crfield.features.graphs.sequences_as_graphs import StepsOrGraphs
from crfield.inference.gaussian import GaussianEngine
from crfield.objectives.gaussian import clamp
from crfield.optimize.history import INTERRUPTED, Step
from crfield.scoring.quadratic import ASSOCIATIONS, QuadraticScorer
from crfield.training.gaussian import GaussianProblem, curvature, fit_gaussian, standard_errors


class ContinuousCRF(RegressorMixin, Estimator):
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

    def __init__(
        self,
        *,
        association: str = "linear",
        l2: float = 1.0,
        standardize: bool = False,
        min_count: int = 1,
        standard_errors: bool = True,
        tol: float = 1e-8,
        max_iter: int = 500,
        verbose: int = 0,
        callback: Callable[[Step, np.ndarray], bool | None] | None = None,
    ) -> None:
        self.association = association
        self.l2 = l2
        self.standardize = standardize
        self.min_count = min_count
        self.standard_errors = standard_errors
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose
        self.callback = callback

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn coefficients and precisions; ``sample_weight`` has one number for each sequence or graph."""
        check_continuous_parameters(self.get_params(deep=False))
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        reader = StepsOrGraphs(standardize=self.standardize)
        batch = reader.fit(X, min_count=self.min_count)
        refuse_large(batch, reader.encoder, sequences=not reader.of_graphs)
        if len(reader.schema.kinds) > 1:
            raise InputError("all nodes must be of one kind, since all labels are numbers of one scale.")
        labels = real_labels(y, batch)
        known = ~np.isnan(labels)
        if not known.any():
            raise LabelError("y holds no known label at all; at least one is needed to train.")
        weight = None if sample_weight is None else check_weights(sample_weight, batch.n_graphs)
        centre = float(labels[known].mean()) if self.association == "linear" else 0.0
        scale = float(np.sqrt(np.mean((labels[known] - labels[known].mean()) ** 2)))
        scale = scale if scale > 1e-300 and isfinite(scale) else 1.0
        width = batch.node.width + batch.node.n_dense
        if self.association == "columns" and not width:
            raise InputError("association='columns' needs at least one column that predicts the labels, got none.")
        edge_columns = tuple(relation.n_columns + relation.n_dense for relation in reader.schema.relations)
        scorer = QuadraticScorer(self.association, width, edge_columns)
        problem = GaussianProblem(scorer, self._scaled(batch, scale), (labels - centre) / scale, weight=weight)
        with Progress(self.verbose, total=self.max_iter, description="ContinuousCRF") as progress:

            def after(step: Step, weights: np.ndarray) -> bool | None:
                progress.update(step)
                return self.callback(step, weights) if self.callback is not None else None

            watching = self.callback is not None or bool(self.verbose)
            result = fit_gaussian(
                problem,
                l2=float(self.l2),
                tol=self.tol,
                max_iter=int(self.max_iter),
                callback=after if watching else None,
            )
        errors = None
        if self.standard_errors:
            errors = standard_errors(curvature(problem, result.weights, l2=float(self.l2)))
        self._reader, self._scorer, self._weights = reader, scorer, result.weights
        self._centre, self._scale, self._errors = centre, scale, errors
        self.objective_ = float(result.value - problem.shift)
        self.n_iter_ = result.n_iter
        self.history_ = result.history
        self.converged_ = result.converged
        self.stop_reason_ = result.reason
        if not result.converged and result.reason != "callback":
            kept = "The best weights so far are kept" if result.reason == INTERRUPTED else "Raise max_iter or tol"
            warnings.warn(
                f"training stopped before the tolerance {self.tol:g} was met ({result.reason}, {result.n_iter} "
                f"steps). {kept}.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _scaled(self, batch: GraphBatch, scale: float) -> GraphBatch:
        """Columns that predict labels have their units."""
        if self.association != "columns":
            return batch
        node = batch.node
        values = np.ones(len(node.indices)) if node.values is None else node.values
        dense = None if node.dense is None else node.dense / scale
        columns = Columns(node.indptr, node.indices, node.width, values / scale, dense)
        return GraphBatch(batch.topology, columns, batch.kind, batch.relation, batch.edge)

    # --------------------------------------------------------------- prediction

    def _fitted(self) -> QuadraticScorer:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this ContinuousCRF is not fitted yet. Call fit(X, y) first, or load a model file.")
        return self._scorer

    def _field(self, X: Any) -> tuple[Quadratic, GraphBatch]:
        """The field of X for labels of deviation 1."""
        scorer = self._fitted()
        batch = self._reader.encode(X)
        refuse_large(batch, self._reader.encoder, doing="be scored", sequences=not self._reader.of_graphs)
        return scorer.score(self._weights, self._scaled(batch, self._scale)), batch

    def _moments(self, X: Any) -> tuple[Gaussian, GraphBatch]:
        field, batch = self._field(X)
        return GaussianEngine().infer(field), batch

    def predict(self, X: Any) -> np.ndarray:
        """The mean of every label: a 1-D object array with one float array for each sequence or graph."""
        found, batch = self._moments(X)
        return _split(found.mean * self._scale + self._centre, batch)

    def predict_std(self, X: Any) -> np.ndarray:
        """The deviation of every label around its mean, in the form of `predict`."""
        found, batch = self._moments(X)
        return _split(np.sqrt(found.variance) * self._scale, batch)

    def predict_intervals(self, X: Any, *, coverage: float = 0.9) -> np.ndarray:
        """Central intervals that hold each label with the probability ``coverage``: arrays (nodes, 2), low and high.

        Weights are taken as known, so that with little training data intervals are somewhat narrow.
        """
        if not _is_number(coverage) or not 0 < coverage < 1:
            raise InputError(f"coverage must be a probability between 0 and 1, got {coverage!r}.")
        from scipy.special import ndtri

        found, batch = self._moments(X)
        reach = float(ndtri(0.5 + 0.5 * coverage)) * np.sqrt(found.variance) * self._scale
        mean = found.mean * self._scale + self._centre
        return _split(np.stack([mean - reach, mean + reach], axis=1), batch)

    def impute(self, X: Any, y: Any) -> np.ndarray:
        """Labels with the unknown ones (None or NaN) filled in by their mean given the known ones."""
        field, batch = self._field(X)
        labels = (real_labels(y, batch) - self._centre) / self._scale
        filled = clamp(field, labels, GaussianEngine()).mean
        return _split(filled * self._scale + self._centre, batch)

    def log_prob(self, X: Any, y: Any) -> np.ndarray:
        """log p(y | x) of every sequence or graph, (B,), a density; unknown labels are integrated out."""
        field, batch = self._field(X)
        labels = (real_labels(y, batch) - self._centre) / self._scale
        engine, topology = GaussianEngine(), batch.topology
        n_known = np.bincount(topology.sequence_of_node, ~np.isnan(labels), minlength=topology.n_sequences)
        total = clamp(field, labels, engine).total - engine.infer(field).total
        return total - np.log(self._scale) * n_known

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
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
        left = float(weight @ (labels - found.mean * self._scale - self._centre) ** 2)
        around = float(weight @ (labels - weight @ labels / weight.sum()) ** 2)
        return 1.0 - left / around if around > 0 else float(left == 0)

    # -------------------------------------------------------------- explanation

    @property
    def coef_(self) -> np.ndarray:
        """(K,) coefficients of the linear prediction, read-only; of standardised columns where these are."""
        coef = self._weights[self._fitted().part["coef"]] * self._scale
        coef.flags.writeable = False
        return coef

    @property
    def intercept_(self) -> float:
        """The constant of the linear prediction."""
        part = self._fitted().part["intercept"]
        return float(self._weights[part].sum() * self._scale + self._centre)

    @property
    def association_(self) -> np.ndarray:
        """(1,) or (K,) precisions of the predictions."""
        return np.exp(self._weights[self._fitted().part["association"]]) / self._scale**2

    @property
    def interaction_(self) -> dict[str, float]:
        """Precision of each relation."""
        scorer = self._fitted()
        return {
            relation.name: float(np.exp(self._weights[scorer.relation(number).start]) / self._scale**2)
            for number, relation in enumerate(self._reader.schema.relations)
        }

    @property
    def standard_errors_(self) -> dict[str, Any] | None:
        """Standard errors of coefficients, of the intercept, and of the logarithms of precisions."""
        scorer, errors = self._fitted(), self._errors
        if errors is None:
            return None
        return {
            "coef": errors[scorer.part["coef"]] * self._scale,
            "intercept": float(errors[scorer.part["intercept"]].sum() * self._scale),
            "association": errors[scorer.part["association"]],
            "interaction": {
                relation.name: float(errors[scorer.relation(number).start])
                for number, relation in enumerate(self._reader.schema.relations)
            },
        }

    # ------------------------------------------------------------------ storage

    def save(self, path: Any) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. Nothing in it is ever executed."""
        from crfield.estimators.continuous_file import save_continuous

        self._fitted()
        save_continuous(self, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.two_d_array = False
        tags.input_tags.allow_nan = False
        tags.no_validation = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_scorer")


def real_labels(y: Any, batch: GraphBatch) -> np.ndarray:
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
    chains: Chains | Any = batch.topology
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


def check_continuous_parameters(parameters: Mapping[str, Any]) -> None:
    """InputError unless every parameter of `ContinuousCRF` has a value that can be used.

    >>> check_continuous_parameters(ContinuousCRF(association="square").get_params())
    Traceback (most recent call last):
    crfield.errors.InputError: association must be one of 'linear', 'columns', got 'square'.
    """
    association = parameters["association"]
    if not isinstance(association, str) or association not in ASSOCIATIONS:
        raise InputError(f"association must be one of {', '.join(map(repr, ASSOCIATIONS))}, got {association!r}.")
    for name, least in (("l2", 0.0), ("tol", None)):
        value = parameters[name]
        if not _is_number(value) or value < 0 or (least is None and value == 0):
            raise InputError(
                f"{name} must be a finite number {'of at least' if least == 0.0 else 'above'} 0, got {value!r}."
            )
    for name in ("max_iter", "min_count"):
        value = parameters[name]
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise InputError(f"{name} must be a whole number of at least 1, got {value!r}.")
    for name in ("standardize", "standard_errors"):
        if not isinstance(parameters[name], bool | np.bool_):
            raise InputError(f"{name} must be True or False, got {parameters[name]!r}.")
    if association == "columns" and parameters["standardize"]:
        raise InputError("columns that predict the labels have the labels' units: leave out standardize.")
    if not isinstance(parameters["verbose"], Integral) or parameters["verbose"] < 0:
        raise InputError(f"verbose must be 0, 1 or 2, got {parameters['verbose']!r}.")
    if parameters["callback"] is not None and not callable(parameters["callback"]):
        raise InputError(f"callback must be a function of (step, weights) or None, got {parameters['callback']!r}.")


def _split(rows: np.ndarray, batch: GraphBatch) -> np.ndarray:
    out, offsets = np.empty(batch.n_graphs, dtype=object), batch.topology.offsets
    for number in range(len(out)):
        out[number] = rows[offsets[number] : offsets[number + 1]]
    return out


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_) and isfinite(value)
