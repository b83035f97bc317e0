"""`ChainCRF`: the linear-chain conditional random field as a scikit-learn estimator.

    p(y | x) = exp( Σ_t node_t(y_t) + Σ_t edge_t(y_{t-1}, y_t) ) / Z(x)

(Lafferty, McCallum & Pereira 2001; Sutton & McCallum 2012 for an introduction). X is a list of sequences in any of
the shapes that `crfield.features` reads; y a list of label sequences of the same lengths, in which a step may be
``None`` (unknown) or a set of labels (one of these).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Self

import numpy as np

from crfield.core.checks import (
    file_path,
    flag,
    function,
    integer,
    loudness,
    number,
    one_of,
    resolve_jobs,
    seed,
    share,
    threads,
)
from crfield.core.graphs import Graphs
from crfield.core.parameters import learnt, parameter
from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch
from crfield.data.label_growth import grown_labels
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, NotFittedError
from crfield.estimators.base.sequences import check_weights, without_weightless
from crfield.estimators.chain.answers import ChainAnswers
from crfield.estimators.chain.calibration import cooled, fitted_temperature
from crfield.estimators.chain.checks import (
    PENALTY,
    SCORE,
    TEMPLATE,
    TOLERANCE,
    check_label_functions,
    check_parameters,
)
from crfield.estimators.chain.columns import fresh_columns, grown_columns
from crfield.estimators.chain.constraints import forbidden_pairs, ruled, with_costs, with_rules
from crfield.estimators.chain.early_stopping import HeldOut
from crfield.estimators.chain.encoded import fit_encoded
from crfield.estimators.chain.higher_order import (
    LongerAnswers,
    is_longer,
    label_of_state,
    parts_of,
    plain_part,
    with_runs,
)
from crfield.estimators.chain.model import ColumnModel, FunctionModel, build_columns, tabulate_sequences
from crfield.estimators.chain.partial_fit import learn_part
from crfield.estimators.chain.training import divide, train_planned, training_digests, warn_unless_converged
from crfield.estimators.explain.margins import ChainExplanations
from crfield.estimators.explain.weights import strongest_features
from crfield.estimators.export.step_scores import StepScorer, column_steps
from crfield.features.templates.template import Template
from crfield.inference.chain import ChainEngine
from crfield.inference.decode import DECODERS, check_decoder
from crfield.optimize.history import Result, Step
from crfield.report.weights import FeatureList, TransitionTable
from crfield.scoring.tables import TableScorer
from crfield.storage.encoded import EncodedDataset
from crfield.training.chain.plan import OBJECTIVES, SOLVERS, ChainParts, Plan, plan_chain, prepare


class ChainCRF(ChainAnswers[Any], ChainExplanations):
    """Linear-chain conditional random field.

    Training minimises −Σ weight · log p(y | x) + ``l1`` ‖w‖₁ + ½ ``l2`` ‖w‖², or another ``objective``.

    Parameters
    ----------
    l1, l2 : float
        Strengths of the penalties. CRFsuite's ``c1`` is ``l1`` and its ``c2 = 1`` is ``l2 = 2``, of a model without
        scores of labels alone: for the same optimum also say ``intercept=False, boundaries=False``.
    features : TextFeatures or another transformer, optional
        What X passes through first: with ``TextFeatures()`` X holds sentences, lists of words or of rows. It is part
        of the model and of its file.
    template : str, path or Template, optional
        CRF++ template, as text or as the path of its file; then X holds rows of token columns. Without a ``B`` line
        there are no transitions.
    functions : list of f(x, t), optional
        Feature functions of a raw sequence and a step. ``transition_functions`` are linked to label pairs.
    label_functions : list of f(y_before, y, x, t), optional
        The textbook's functions, one weight each; for teaching and small problems.
    transition_features : "all" or list, optional
        Features that also score pairs of neighbouring labels: names of dict entries, or column numbers.
    standardize : bool
        Bring numeric columns to mean 0 and deviation 1, as learnt in ``fit``.
    min_count : int
        Columns seen on fewer steps are dropped. Counted by occurrence, whatever the values.
    feature_pairs, transition_pairs : "observed" or "all"
        Which (feature, label) pairs and which label pairs have a weight; transitions may also be "none".
    intercept, boundaries : bool
        A score for each label everywhere; at the first and at the last step.
    penalize_intercepts : bool
        Whether the penalties touch those scores.
    order : int
        How many labels a label looks back at. Above 1, runs of up to ``order`` + 1 labels that occur in y have a
        weight, others fall back on shorter ones; exact (`crfield.scoring.higher_order`).
    objective : str
        What is minimised: "auto" (what the solver trains, the likelihood as a rule) or a name of
        `crfield.training.chain.plan`, such as "pseudo_likelihood", "softmax_margin" or "label_accuracy".
    solver : str
        How: "auto", "lbfgs", "warm" or another row of `crfield.training.chain.plan`.
    solver_options : dict, optional
        What only that solver knows, such as ``{"epochs": 5}`` of "perceptron".
    constraints : str, iterable of pairs, callable or Constraints, optional
        Rules of neighbouring labels in training and prediction: a tag scheme ("bio", "bioes", "iob1"), forbidden
        pairs (before, after), a predicate of them, or `crfield.Constraints`. None stands for a sequence's ends.
    class_weight : "balanced" or dict, optional
        How much missing each true label costs ("auto" then means "softmax_margin"; see also "label_likelihood").
    costs : dict or (L, L) table, optional
        What each label costs where another is true: {(true, taken): cost}, or rows for true labels.
    tol : float
        Training stops when the objective is estimated to be within this fraction of its optimum.
    max_iter : int
        Most steps of the optimiser.
    decode : "viterbi" or "marginal"
        What ``predict`` returns: the best labelling as a whole, or the best label of each step.
    warm_start : bool
        Go on from the weights of the last ``fit``; new features and labels join those it has.
    n_jobs : int or None
        Threads; -1 for all processors.
    random_state : int, Generator or None
        Order of the stochastic steps. The same seed and number of threads give the same bits.
    verbose : int
        1 shows a progress line, 2 a line for every step.
    callback : callable(step, weights), optional
        Called after every step of the optimiser; returning True ends training.
    checkpoint : path, optional
        File that keeps the state of training; the same call goes on from it after any end of its process.
    checkpoint_every : float
        Seconds between two writings of it; 0 writes after every step.
    validation_fraction : float, optional
        Share of the sequences to hold out (or give ``validation=(X, y)`` to ``fit``); the best weights are kept.
    validation_score : "log_likelihood", "accuracy", "f1" or scorer(estimator, X, y)
        What held-out sequences are scored by after every step; ``history_`` has the scores.
    patience : int
        Steps without a better held-out score after which training ends.

    Examples
    --------
    >>> X = [[{"word": "the"}, {"word": "dog"}, {"word": "barks"}], [{"word": "a"}, {"word": "cat"}]]
    >>> y = [["DET", "NOUN", "VERB"], ["DET", "NOUN"]]
    >>> model = ChainCRF(l2=0.1).fit(X, y)
    >>> model.predict([[{"word": "the"}, {"word": "cat"}]])[0].tolist()
    ['DET', 'NOUN']
    """

    _model: ColumnModel | FunctionModel | None = learnt()
    _labels_known: LabelCoder = learnt()
    source_: dict[str, str] = learnt()  # how the command line read the files of training, where it did
    _parts: tuple[Any, ...] | None = learnt()  # what a model file holds, until it is first asked for

    l1: float = parameter(PENALTY, default=0.0)
    l2: float = parameter(PENALTY, default=1.0)
    features: Any = parameter(default=None, stored=False)
    template: str | os.PathLike[str] | Template | None = parameter(TEMPLATE, default=None)
    functions: Sequence[Any] | None = parameter(default=None, stored=False)
    transition_functions: Sequence[Any] = parameter(default=(), stored=False)
    label_functions: Sequence[Callable[[Any, Any, Any, int], float]] | None = parameter(default=None, stored=False)
    transition_features: str | Sequence[Any] | None = parameter(default=None)
    standardize: bool = parameter(flag, default=False)
    min_count: int = parameter(
        integer(1, meaning="the fewest steps a feature must be seen on; 1 keeps all"), default=1
    )
    feature_pairs: str = parameter(one_of("observed", "all"), default="observed")
    transition_pairs: str = parameter(one_of("observed", "all", "none"), default="observed")
    intercept: bool = parameter(flag, default=True)
    boundaries: bool = parameter(flag, default=True)
    penalize_intercepts: bool = parameter(flag, default=True)
    order: int = parameter(integer(1, meaning="how many previous labels each label depends on"), default=1)
    objective: str = parameter(one_of(*OBJECTIVES), default="auto")
    solver: str = parameter(one_of(*SOLVERS), default="auto")
    solver_options: dict[str, Any] | None = parameter(default=None)
    constraints: Any = parameter(default=None)
    class_weight: Any = parameter(default=None)
    costs: Any = parameter(default=None)
    tol: float = parameter(TOLERANCE, default=1e-4)
    max_iter: int = parameter(integer(1, meaning="the most steps of the optimiser"), default=1000)
    decode: str = parameter(one_of(*DECODERS), default="viterbi")
    warm_start: bool = parameter(flag, default=False)
    n_jobs: int | None = parameter(threads, default=None)
    random_state: Any = parameter(seed, default=0)
    verbose: int = parameter(loudness, default=0)
    callback: Callable[[Step, np.ndarray], bool | None] | None = parameter(
        function("(step, weights)"), default=None, stored=False
    )
    checkpoint: Any = parameter(file_path | None, default=None, stored=False)
    checkpoint_every: float = parameter(number(0, meaning="seconds"), default=60.0)
    validation_fraction: float | None = parameter(share() | None, default=None)
    validation_score: Any = parameter(SCORE, default="log_likelihood")
    patience: int = parameter(integer(1, meaning="the steps without a better score"), default=5)

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, validation: Any = None) -> Self:
        """Learn the weights from sequences X and their labels y, or from a `crfield.EncodedDataset` on disk.

        ``sample_weight`` has one number for each sequence; 0 leaves it out. ``validation`` is a pair (X, y) of
        held-out sequences to stop by. Ctrl-C ends training with the best weights so far.
        """
        self._check_parameters()
        if isinstance(X, EncodedDataset):
            return self._finish(*fit_encoded(self, X, y, sample_weight, validation), len(X))
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        before = self._fitted if self.warm_start and self.__sklearn_is_fitted__() else None
        coder = grown_labels(None if before is None else self._coder, y)
        X, y, sample_weight, held = divide(self._training_parameters(), X, y, sample_weight, validation)
        prepare = self._column_problem if self.label_functions is None else self._function_problem
        problem, model = prepare(X, y, coder, sample_weight, before)
        held_out = None
        if held is not None:
            held_out = HeldOut(self, model, coder, *held, score=self.validation_score, patience=self.patience)
        result = self._train(problem, model, held_out)
        return self._finish(model, coder, result, len(y))

    def _finish(self, model: ColumnModel | FunctionModel, coder: LabelCoder, result: Result, n: int) -> Self:
        self._ongoing, self.n_seen_ = None, n
        self._learnt(model, coder, result)
        warn_unless_converged(result, self.tol)
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, *, n_sequences: float | None = None
    ) -> Self:
        """Learn from one more part of the data, in one pass of stochastic steps; features and labels may be new.

        ``classes`` lists labels that parts to come may hold (it is not needed). Penalties are shared out over
        ``n_sequences``, by default all that were handed in so far: give the number of different ones where parts come
        more than once, and many passes approach what ``fit`` finds. ``objective_`` is the loss met on the way.
        """
        self._check_parameters()
        self._learnt(*learn_part(self, X, y, classes, sample_weight, n_sequences))
        return self

    def _learnt(self, model: ColumnModel | FunctionModel, coder: LabelCoder, result: Result) -> None:
        model.weights = result.weights
        self._model, self._labels_known, self._parts = model, coder, None
        self._rules = getattr(self, "constraints", None)
        self.classes_ = coder.classes_
        self.objective_ = float(result.value)
        self.n_iter_ = result.n_iter
        self.n_evaluations_ = result.n_evaluations
        self.history_ = result.history
        self.converged_ = result.converged
        self.stop_reason_ = result.reason
        # MEstimatedCRF has its own method and no parameter for it.
        asked = f"{self.solver}, as asked for" if hasattr(self, "solver") else f"as {type(self).__name__} is trained"
        self.plan_ = result.how or asked

    def _check_parameters(self) -> None:
        check_parameters(self.get_params(deep=False))

    def _column_problem(
        self, X: Any, y: Any, coder: LabelCoder, sample_weight: Any, before: ColumnModel | FunctionModel | None
    ) -> tuple[Any, ColumnModel | FunctionModel]:
        model, batch, target = self._encoded(X, y, coder, sample_weight, before)
        return self._planned(self._parts_of(model, batch, target)), model

    def _parts_of(self, model: ColumnModel, batch: Batch, target: Target) -> Any:
        return parts_of(model, batch, target, n_jobs=resolve_jobs(self.n_jobs))

    def _planned(self, parts: ChainParts) -> tuple[Plan, Any, Any]:
        plan = plan_chain(self.objective, self.solver, costs=getattr(parts.target, "cost", None) is not None)
        digests = None if self.checkpoint is None else training_digests(self._training_parameters(), parts)
        return plan, prepare(plan, parts), digests

    def _training_parameters(self) -> dict[str, Any]:
        return ChainCRF().get_params(deep=False) | self.get_params(deep=False)

    def _encoded(
        self, X: Any, y: Any, coder: LabelCoder, sample_weight: Any, before: ColumnModel | FunctionModel | None
    ) -> tuple[ColumnModel, Batch, Target]:
        parameters = self._training_parameters()

        def make_target(topology: Chains) -> Target:
            return self._target(topology, coder, y, sample_weight)

        if isinstance(before, ColumnModel):
            model, batch, target, _ = grown_columns(parameters, X, make_target, plain_part(before))
        else:
            model, batch, target = fresh_columns(parameters, X, make_target)
        layout = with_rules(model.layout, getattr(self, "constraints", None), coder, target)
        model = with_runs(ColumnModel(model.encoder, layout, model.weights), target, parameters["order"], before)
        return model, batch, target

    def _function_problem(
        self, X: Any, y: Any, coder: LabelCoder, sample_weight: Any, before: ColumnModel | FunctionModel | None
    ) -> tuple[Any, ColumnModel | FunctionModel]:
        functions = check_label_functions(self.get_params(deep=False))
        tables = tabulate_sequences(functions, coder.labels, X)
        target = self._target(tables.topology, coder, y, sample_weight)
        scorer = TableScorer(len(functions), coder.n_labels)
        parts = ChainParts(scorer, tables, target, ChainEngine(resolve_jobs(self.n_jobs)))
        weights = np.zeros(len(functions))
        if isinstance(before, FunctionModel) and len(before.weights) == len(functions):
            weights = before.weights
        return self._planned(parts), FunctionModel(functions, coder.labels, weights)

    def _target(self, topology: Any, coder: LabelCoder, y: Any, sample_weight: Any) -> Target:
        labels, allowed = coder.encode(y, topology.lengths)
        if topology.n_nodes == 0:
            raise InputError("X holds no steps at all; at least one sequence with one step is needed to train.")
        weight = None if sample_weight is None else check_weights(sample_weight, topology.n_sequences)
        return with_costs(Target(topology, coder.n_labels, labels, allowed, weight), vars(self), coder)

    def _train(self, problem: Any, model: ColumnModel | FunctionModel, held_out: HeldOut | None = None) -> Result:
        return train_planned(self, self._training_parameters(), problem, model, held_out)

    # --------------------------------------------------------------- prediction

    @property
    def _fitted(self) -> ColumnModel | FunctionModel:
        # The parts first: another thread that has just built the model of them takes them away afterwards.
        parts, model = getattr(self, "_parts", None), getattr(self, "_model", None)
        if model is None:
            if parts is None:
                raise NotFittedError(
                    f"this {type(self).__name__} is not fitted yet. Call fit(X, y) first, or load a model file."
                )
            model = self._model = build_columns(*parts)
            self._parts = None
        return ruled(self, model)

    @property
    def _coder(self) -> LabelCoder:
        self._fitted  # noqa: B018  (says so where nothing is fitted)
        return self._labels_known

    @property
    def coef_(self) -> np.ndarray:
        """(W,) the weights, read-only; `top_features` and ``transitions_`` give them names."""
        weights = self._fitted.weights.view()
        weights.flags.writeable = False
        return weights

    def _states(self) -> None:
        return None

    def potentials(self, X: Any) -> Potentials:
        """The scores of X, for engines and comparisons of your own."""
        return self._fitted.potentials(X, n_jobs=resolve_jobs(self.n_jobs))

    def _label_of_state(self) -> np.ndarray | None:
        return label_of_state(self._fitted)

    def _beliefs(self, X: Any, known: Any = None) -> tuple[np.ndarray, Chains | Graphs]:
        if is_longer(self._fitted):
            answers = LongerAnswers(self, X)
            return answers.beliefs(known), answers.topology
        return super()._beliefs(X, known)

    def log_prob(self, X: Any, y: Any) -> np.ndarray:
        """log p(y | x) of every sequence, (B,); for partial labels the probability of all they allow."""
        return LongerAnswers(self, X).log_prob(y) if is_longer(self._fitted) else super().log_prob(X, y)

    def _codes(self, X: Any, known: Any = None) -> tuple[np.ndarray, Chains | Graphs]:
        if is_longer(self._fitted):
            answers = LongerAnswers(self, X)
            return answers.codes(known), answers.topology
        if known is None and check_decoder(self.decode) == "viterbi":  # from packed weights, no scores written out
            return self._fitted.best_paths(X, n_jobs=resolve_jobs(self.n_jobs))
        return super()._codes(X, known)

    def _forbidden(self) -> np.ndarray | None:
        return forbidden_pairs(self._fitted)

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        return column_steps(self._columns("stream"), history=history)

    def calibrated(self, X: Any, y: Any) -> Self:
        """A copy whose probabilities are as good as they sound: its temperature is fitted to held-out sequences.

        Predicted paths are the same; ``temperature_`` tells what the weights were divided by.
        """
        return cooled(self, model := self._columns("calibrated"), fitted_temperature(self, model, X, y))

    # -------------------------------------------------------------- explanation

    @property
    def transitions_(self) -> TransitionTable:
        """Transition weights; NaN where a pair of labels has none."""
        model = self._columns("transitions_")
        return TransitionTable(self._coder.labels, model.layout.transitions(model.weights))

    def top_features(self, n: int = 20, *, label: Hashable | None = None) -> FeatureList:
        """The features of largest absolute weight, with their names; of one label if given.

        Only the names that are shown are made.
        """
        return strongest_features(self._columns("top_features"), self._coder, n, label)

    def _columns(self, name: str) -> ColumnModel:
        model = self._fitted
        if not isinstance(model, ColumnModel):
            raise InputError(f"{name} is for models with columns; this one has functions of two labels: see coef_.")
        return model

    # ------------------------------------------------------------------ storage

    def save(self, path: Any) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. Nothing in it is ever executed."""
        from crfield.estimators.chain.file import save_chain

        self._fitted  # noqa: B018
        save_chain(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return getattr(self, "_model", None) is not None or getattr(self, "_parts", None) is not None

    def __getstate__(self) -> Any:
        if getattr(self, "_parts", None) is not None:
            self._fitted  # noqa: B018  (what is still on disk is read before it is pickled)
        return super().__getstate__()
