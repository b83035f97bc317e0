"""`TreeCRF`: a chain CRF whose scores are sums of regression trees, grown along the slope of the likelihood.

A linear chain weighs each column on its own, so that whoever wants conjunctions must write them down. Trees find
them: every round grows one on what the labels want and the beliefs do not give yet (Dietterich, Ashenfelter &
Bulatov 2004; `crfield.boosting.functional_gradient`). Thresholds make scaling needless, and columns that say nothing
are never asked. What comes out is an ordinary chain CRF: exact probabilities, Viterbi, likelihoods.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from math import isfinite
from numbers import Integral, Real
from typing import Any, Self

import numpy as np

from crfield.boosting.functional_gradient import TRANSITIONS, Growth, grow_field
from crfield.boosting.round_table import RoundTable
from crfield.boosting.tree_field import TreeField
from crfield.core.checks import random_generator, resolve_jobs
from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch
from crfield.data.labels import LabelCoder
from crfield.errors import ConvergenceWarning, InputError, NotFittedError
from crfield.estimators.base.progress import Progress
from crfield.estimators.base.sequences import check_weights, without_weightless
from crfield.estimators.base.sklearn_parts import as_matrix
from crfield.estimators.chain.answers import ChainAnswers
from crfield.estimators.export.step_scores import StepScorer, single_steps
from crfield.features.columns.step_windows import check_window, window_offsets, windowed
from crfield.features.detect import encoder_for
from crfield.features.encoder import Encoder
from crfield.inference.decode import check_decoder
from crfield.optimize.history import INTERRUPTED, Step
from crfield.report.weights import TransitionTable

_COUNTS = {"n_rounds": 1, "max_depth": 0, "min_samples_leaf": 1, "window": 0, "max_bins": 2, "patience": 1}
_NUMBERS = {"learning_rate": "above 0", "ridge": "of at least 0", "l2": "of at least 0"}
_SHARES = {"subsample": "above 0 and at most 1", "max_features": "above 0 and at most 1"}
MOST_BINS = 255


class TreeCRF(ChainAnswers[Any]):
    """Chain CRF with boosted regression trees for scores.

    X is a list of sequences in any form that `ChainCRF` reads without templates and functions: 2-D arrays (steps,
    columns), CSR matrices, dicts or lists of strings for every step. In y a step may be unknown (``None``) or one of
    a set.

    Parameters
    ----------
    n_rounds : int
        Most rounds; each adds a tree.
    learning_rate : float
        How much of the Newton step a round takes. Small with many rounds is better and slower.
    max_depth, min_samples_leaf : int
        Cuts on the longest path of a tree; fewest steps in a leaf.
    ridge : float
        Added to the curvature of every leaf, so that leaves of few steps stay small.
    l2 : float
        Penalty ½ l2 ‖·‖² on the transition table and on the scores of first and last steps.
    transitions : "table", "trees" or "none"
        One table for all pairs of neighbours; or the table plus trees with a table at each leaf, which read the
        columns of the later step (K² values for K labels: for few labels); or none: steps are independent.
    window : int
        Trees also see the columns of this many steps before and after.
    subsample, max_features : float
        Shares of steps and of columns, drawn anew each round, that a tree is grown on.
    max_bins : int
        Thresholds are sought among the borders of so many quantile bins.
    held_out : float
        Share of the sequences to keep aside; training ends when their loss has not fallen for ``patience`` rounds,
        and the rounds after the best one are dropped. 0 runs all rounds on all sequences.
    patience : int
        See ``held_out``.
    decode : "viterbi" or "marginal"
        What ``predict`` returns: the best labelling as a whole, or the best label of each step.
    n_jobs : int or None
        Threads; -1 for all processors.
    random_state : int, Generator or None
        Sequences held out, and samples of steps and columns.
    verbose : int
        1 shows a progress line, 2 a line for every round.
    callback : callable(step), optional
        Called after every round; returning True ends training.

    Attributes
    ----------
    rounds_ : RoundTable
        What each round cut first, its gain, and the mean −log p of the labels.
    n_iter_, objective_, stop_reason_, converged_, classes_
        Rounds that are kept, Σ weight · (−log p) after them, why they ended, and the labels.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.integers(0, 2, (8, 2)) for _ in range(20)]
    >>> y = [np.where(x[:, 0] ^ x[:, 1], "odd", "even") for x in X]
    >>> model = TreeCRF(n_rounds=50, learning_rate=0.3, max_depth=2).fit(X, y)
    >>> model.predict([[[0, 1], [1, 1]]])[0].tolist(), round(model.score(X, y), 2)
    (['odd', 'even'], 1.0)
    """

    def __init__(
        self,
        *,
        n_rounds: int = 100,
        learning_rate: float = 0.1,
        max_depth: int = 4,
        min_samples_leaf: int = 5,
        ridge: float = 1.0,
        l2: float = 1.0,
        transitions: str = "table",
        window: int = 0,
        subsample: float = 1.0,
        max_features: float = 1.0,
        max_bins: int = 32,
        held_out: float = 0.0,
        patience: int = 10,
        decode: str = "viterbi",
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
        callback: Callable[[Step], bool | None] | None = None,
    ) -> None:
        self.n_rounds = n_rounds
        self.learning_rate = learning_rate
        self.max_depth = max_depth
        self.min_samples_leaf = min_samples_leaf
        self.ridge = ridge
        self.l2 = l2
        self.transitions = transitions
        self.window = window
        self.subsample = subsample
        self.max_features = max_features
        self.max_bins = max_bins
        self.held_out = held_out
        self.patience = patience
        self.decode = decode
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Grow the trees from sequences X and their labels y.

        ``sample_weight`` has one number for each sequence; 0 leaves it out. Ctrl-C ends training with the rounds so
        far.
        """
        check_tree_parameters(self.get_params(deep=False))
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        coder = LabelCoder().fit(y)
        encoder = encoder_for(X)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="numeric features differ widely")  # thresholds have no scale
            batch = encoder.fit(X)
        chains = batch.topology
        labels, allowed = coder.encode(y, chains.lengths)
        weight = None if sample_weight is None else check_weights(sample_weight, chains.n_sequences)
        target = Target(chains, coder.n_labels, labels, allowed, weight)
        table = windowed(as_matrix(batch.node), chains, reach=self.window)
        rng = random_generator(self.random_state)
        learn, aside = _split(chains.n_sequences, self.held_out, rng)
        held = _part(table, target, aside) if len(aside) else None
        if held is not None:
            table, target = _part(table, target, learn)
        with Progress(self.verbose, total=self.n_rounds, description="TreeCRF") as progress:

            def watch(step: Step) -> bool | None:
                progress.update(step)
                return self.callback(step) if self.callback is not None else None

            grown = grow_field(
                table,
                target,
                self._growth(),
                rng=rng,
                held_out=held,
                watch=watch,
                name_of=lambda column: column_name(encoder, batch, column),
            )
        self._labels_known, self._encoder, self._field = coder, encoder, grown.field
        self.classes_ = coder.classes_
        self.rounds_ = RoundTable(grown.rounds)
        self.n_iter_ = len(grown.field.trees)
        self.objective_ = float(grown.objective)
        self.stop_reason_ = grown.reason
        self.converged_ = grown.reason != INTERRUPTED
        if not self.converged_:
            warnings.warn(
                f"training was interrupted after {self.n_iter_} of {self.n_rounds} rounds; these are kept.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _growth(self) -> Growth:
        return Growth(
            n_rounds=int(self.n_rounds),
            learning_rate=float(self.learning_rate),
            max_depth=int(self.max_depth),
            min_leaf=int(self.min_samples_leaf),
            ridge=float(self.ridge),
            l2=float(self.l2),
            subsample=float(self.subsample),
            max_features=float(self.max_features),
            max_bins=int(self.max_bins),
            patience=int(self.patience),
            transitions=self.transitions,
            n_jobs=resolve_jobs(self.n_jobs),
        )

    # --------------------------------------------------------------- prediction

    @property
    def _coder(self) -> LabelCoder:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this TreeCRF is not fitted yet. Call fit(X, y) first, or load a model file.")
        return self._labels_known

    @property
    def field_(self) -> TreeField:
        """The trees and tables that were learnt."""
        self._coder  # noqa: B018  (says so where nothing is fitted)
        return self._field

    def _states(self) -> None:
        return None

    def potentials(self, X: Any) -> Potentials:
        """The scores of X, for engines and comparisons of your own."""
        field, batch = self.field_, self._encoder.encode(X)
        table = windowed(as_matrix(batch.node), batch.topology, reach=self.window)
        return field.potentials(table, batch.topology)

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        field = self.field_
        varied = field.edge_trees is not None and len(field.edge_trees) > 0
        tables = {"start": field.start, "end": field.end, "transitions": field.table}
        return single_steps(self, tables, varied=varied, window=self.window, more=[field.prior])

    @property
    def transitions_(self) -> TransitionTable:
        """The table of label pairs (that of trees on transitions comes on top of it)."""
        return TransitionTable(self._coder.labels, self.field_.table)

    def save(self, path: Any) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. Nothing in it is ever executed."""
        from crfield.estimators.boosted.tree_crf_file import save_tree

        self._coder  # noqa: B018
        save_tree(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_field")


def column_name(encoder: Encoder, batch: Batch, column: int) -> str:
    """The name of a column of the table that trees read: sparse columns, dense ones, then those of other steps."""
    width = batch.node.width + batch.node.n_dense
    block, own = divmod(column, width)
    name = encoder.node_name(own) if own < batch.node.width else encoder.dense_name(own - batch.node.width)
    offset = window_offsets((block + 1) // 2)[block]
    return f"{name} at {offset:+d}" if offset else name


def _split(n_sequences: int, share: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Sequences to learn from and sequences held out, both rising; at least one to learn from."""
    n = min(round(share * n_sequences), n_sequences - 1)
    if share and n < 1:
        raise InputError(
            f"held_out={share:g} of {n_sequences} sequences leaves none to hold out. Give more sequences, or "
            "held_out=0."
        )
    order = rng.permutation(n_sequences) if n else np.arange(n_sequences)
    return np.sort(order[n:]), np.sort(order[:n])


def _part(table: Any, target: Target, sequences: np.ndarray) -> tuple[Any, Target]:
    """Rows and target of some of the sequences."""
    topology = target.topology
    inside = np.zeros(topology.n_sequences, bool)
    inside[sequences] = True
    rows = np.flatnonzero(inside[topology.sequence_of_node])
    return table[rows], Target(
        Chains.from_lengths(topology.lengths[sequences]),
        target.n_labels,
        target.labels[rows],
        None if target.allowed is None else target.allowed[rows],
        None if target.weight is None else target.weight[sequences],
    )


def check_tree_parameters(parameters: Mapping[str, Any]) -> None:
    """InputError unless every parameter of `TreeCRF` has a value that can be used.

    >>> check_tree_parameters(TreeCRF(n_rounds=0).get_params())
    Traceback (most recent call last):
    crfield.errors.InputError: n_rounds must be a whole number of at least 1, got 0.
    """
    for name, least in _COUNTS.items():
        value = parameters[name]
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
            raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    check_window(parameters["window"])
    if parameters["max_bins"] > MOST_BINS:
        raise InputError(f"max_bins must be at most {MOST_BINS}, got {parameters['max_bins']!r}.")
    for name, words in {**_NUMBERS, **_SHARES}.items():
        value = parameters[name]
        least_ok = _is_number(value) and (value > 0 or (value == 0 and "least 0" in words))
        if not least_ok or (name in _SHARES and value > 1):
            raise InputError(f"{name} must be a finite number {words}, got {value!r}.")
    if not _is_number(parameters["held_out"]) or not 0 <= parameters["held_out"] < 1:
        raise InputError(f"held_out must be a share of at least 0 and below 1, got {parameters['held_out']!r}.")
    if parameters["transitions"] not in TRANSITIONS:
        names = ", ".join(map(repr, TRANSITIONS))
        raise InputError(f"transitions must be one of {names}, got {parameters['transitions']!r}.")
    if not isinstance(parameters["verbose"], Integral) or parameters["verbose"] < 0:
        raise InputError(f"verbose must be 0, 1 or 2, got {parameters['verbose']!r}.")
    if parameters["callback"] is not None and not callable(parameters["callback"]):
        raise InputError(f"callback must be a function of a step or None, got {parameters['callback']!r}.")
    check_decoder(parameters["decode"])
    resolve_jobs(parameters["n_jobs"])
    random_generator(parameters["random_state"])


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_) and isfinite(value)
