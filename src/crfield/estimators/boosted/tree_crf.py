"""`TreeCRF`: a chain CRF whose scores are sums of regression trees, grown along the slope of the likelihood.

A linear chain weighs each column on its own, so that whoever wants conjunctions must write them down. Trees find
them: every round grows one on what the labels want and the beliefs do not give yet (Dietterich, Ashenfelter &
Bulatov 2004; `crfield.boosting.functional_gradient`). Thresholds make scaling needless, and columns that say nothing
are never asked. What comes out is an ordinary chain CRF: exact probabilities, Viterbi, likelihoods.

Sensors fail, repeat themselves and belong to people. A value that is missing takes the better side of every cut; with
``memory`` a chain knows the segment before the present one; ``class_weight`` lets rare labels count; and the rounds
can be ended by people who are held out whole.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from crfield.boosting.functional_gradient import TRANSITIONS, Grown, Growth, grow_field
from crfield.boosting.round_table import RoundTable
from crfield.boosting.tree_field import TreeField
from crfield.boosting.weak_learners.candidates import BINS, Table
from crfield.core.checks import (
    Check,
    flag,
    function,
    integer,
    is_number,
    loudness,
    number,
    one_of,
    random_generator,
    resolve_jobs,
    seed,
)
from crfield.core.parameters import learnt, parameter
from crfield.core.potentials import Potentials
from crfield.core.states import StateSpace
from crfield.core.target import Target, check_weights
from crfield.core.topology import Chains
from crfield.core.typing import Labels, Seed, Sequences
from crfield.data.batch import Batch, matrix_of
from crfield.data.flat import chosen_nodes
from crfield.data.labels import LabelCoder, sequence_target
from crfield.errors import ConvergenceWarning, InputError, ShapeError
from crfield.estimators.base.groups import PENALTY, Weighing
from crfield.estimators.base.progress import Progress
from crfield.estimators.base.sequences import without_weightless
from crfield.estimators.chain.answers import ChainAnswers
from crfield.estimators.chain.crf import with_costs
from crfield.estimators.explain.permutation import permuted_importances
from crfield.estimators.export.columns import dense_names, is_dense
from crfield.estimators.export.states import StateSteps
from crfield.estimators.export.step_scores import StepScorer, refuse_window, single_steps
from crfield.estimators.export.trees import TreeSteps, TreeTable
from crfield.features.columns.step_windows import MOST, window_offsets, windowed
from crfield.features.detect import encoder_for, encoder_from_state
from crfield.features.encoder import Encoder
from crfield.optimize.history import INTERRUPTED, Step
from crfield.report.importance import ImportanceList
from crfield.report.weights import TransitionTable
from crfield.storage.state import State, refuse
from crfield.training.chain.partial_fit import take_target
from crfield.training.segment_memory import SegmentMemory

PART = number(above=0, most=1)
HELD_OUT = Check("a number ≥ 0 and < 1", lambda value: is_number(value) and 0 <= value < 1)


@dataclass(frozen=True, eq=False)
class TreeChain:
    """Labels, encoder and how far it looks around, the trees and tables, and the rounds that grew them."""

    labels: LabelCoder
    encoder: Encoder
    window: int
    field: TreeField
    rounds: RoundTable

    @property
    def states(self) -> StateSpace | None:
        """The states of a memory."""
        return None if self.field.memory is None else self.field.memory.space

    def potentials(self, X: Any) -> Potentials:
        """Scores of X."""
        batch = self.encoder.encode(X)
        return self.field.potentials(tabled(batch, self.window), batch.topology)

    def state(self) -> State:
        """Header and arrays."""
        header = {
            "labels": self.labels.to_json(),
            "n_columns": self.field.trees.n_columns,
            "rounds": self.rounds.to_json(),
        }
        arrays = {f"field/{name}": array for name, array in self.field.state().arrays.items()}
        return State(header, arrays).with_part("encoder", self.encoder.state())

    @classmethod
    def from_state(cls, state: State, parameters: Mapping[str, Any]) -> Self:
        """The value whose `state` this is; ModelFileError for whatever does not fit."""
        labels, window = LabelCoder.from_json(state.header.get("labels")), int(parameters["window"])
        encoder = encoder_from_state(state.part("encoder").header, state.under("encoder"))
        n_columns = state.integer("n_columns")
        if n_columns != (2 * window + 1) * encoder.widths.of_steps:
            refuse("the trees of the model file do not fit its encoder")
        field = TreeField.from_state(State({}, state.under("field")), n_columns=n_columns, n_labels=labels.n_labels)
        return cls(labels, encoder, window, field, RoundTable.from_json(state.header.get("rounds")))


class TreeCRF(Weighing, ChainAnswers[TreeChain], kind="tree_crf", model=TreeChain):
    """Chain CRF with boosted regression trees for scores.

    X is a list of sequences in any form that `ChainCRF` reads without templates and functions: 2-D arrays (steps,
    columns), CSR matrices, dicts or lists of strings for every step. NaN in a matrix is a missing value, and goes
    where it is better in training; in a column that had none then, where more steps went. In y a step may be unknown
    (``None``) or one of a set.

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
    memory : bool
        Whether scores and transitions also depend on the label of the segment before the present one
        (`crfield.training.segment_memory`): for activities that follow a script. Changes of label that training never
        saw are then impossible.
    window : int
        Trees also see the columns of this many steps before and after.
    subsample, max_features : float
        Shares of steps and of columns, drawn anew each round, that a tree is grown on.
    max_bins : int
        Thresholds are sought among the borders of so many quantile bins.
    class_weight : "balanced" or dict, optional
        How much missing each true label costs, as in `ChainCRF`: training then minimises the softmax margin.
    held_out : float
        Share of the sequences, or of the ``groups`` given to ``fit``, to keep aside; training ends when their −log p
        has not fallen for ``patience`` rounds, and the rounds after the best one are dropped. 0 runs all rounds on
        all sequences.
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
        Rounds that are kept, Σ weight · (−log p) after them (the softmax margin with ``class_weight``, of paths of
        states with a ``memory``), why they ended, and the labels.
    feature_importances_ : array
        Share of each column in the gains of all cuts.

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

    n_rounds: int = parameter(integer(1), default=100)
    learning_rate: float = parameter(number(above=0), default=0.1)
    max_depth: int = parameter(integer(0), default=4)
    min_samples_leaf: int = parameter(integer(1), default=5)
    ridge: float = parameter(number(0), default=1.0)
    l2: float = parameter(PENALTY, default=1.0)
    transitions: str = parameter(one_of(*TRANSITIONS), default="table")
    memory: bool = parameter(flag, default=False)
    window: int = parameter(integer(0, most=MOST), default=0)
    subsample: float = parameter(PART, default=1.0)
    max_features: float = parameter(PART, default=1.0)
    max_bins: int = parameter(BINS, default=32)
    held_out: float = parameter(HELD_OUT, default=0.0)
    patience: int = parameter(integer(1), default=10)
    random_state: int | np.random.Generator | None = parameter(seed, default=0)
    verbose: int = parameter(loudness, default=0)
    callback: Callable[[Step], bool | None] | None = parameter(function("a step"), default=None, stored=False)

    rounds_: RoundTable = learnt()
    n_iter_: int = learnt()
    objective_: float = learnt()
    converged_: bool = learnt()
    stop_reason_: str = learnt()
    reported = ("objective_", "n_iter_", "converged_", "stop_reason_")

    def _check_together(self) -> None:
        super()._check_together()
        if self.memory and self.transitions != "table":
            raise InputError(
                f"memory is about the table of transitions: use transitions='table', got {self.transitions!r}."
            )

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Grow the trees from sequences X and their labels y.

        ``sample_weight`` has one number for each sequence; 0 leaves it out. ``groups`` names the person, place or
        trial of each sequence; ``held_out`` then keeps whole groups aside. Ctrl-C ends training with the rounds so
        far.
        """
        self.check()
        groups = self._groups(groups, X, sample_weight)
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        labels, encoder = LabelCoder().fit(y), encoder_for(X, missing=True)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="numeric features differ widely")  # thresholds have no scale
            batch = encoder.fit(X)
        target = sequence_target(batch.topology, labels, y, sample_weight)
        table = tabled(batch, int(self.window))
        grown = self._grow(table, target, labels, groups, lambda k: column_name(encoder, batch, k))
        self.n_iter_, self.objective_ = len(grown.field.trees), float(grown.objective)
        self.stop_reason_, self.converged_ = grown.reason, grown.reason != INTERRUPTED
        self._learn(TreeChain(labels, encoder, int(self.window), grown.field, RoundTable(grown.rounds)))
        if not self.converged_:
            warnings.warn(
                f"training was interrupted after {self.n_iter_} of {self.n_rounds} rounds; these are kept.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _groups(self, groups: Any, X: Any, sample_weight: Any) -> list[Hashable] | None:
        """The group of every sequence that counts; None where nobody is held out, and groups say nothing."""
        if groups is None or not self.held_out:
            return None
        found = list(groups)
        if hasattr(X, "__len__") and len(found) != len(X):
            raise ShapeError(f"groups must name the group of each of {len(X)} sequences, got {len(found)}.")
        if sample_weight is None:
            return found
        return [found[k] for k in np.flatnonzero(check_weights(sample_weight, len(found))).tolist()]

    def _grow(
        self,
        table: Table,
        target: Target,
        labels: LabelCoder,
        groups: list[Hashable] | None,
        name_of: Callable[[int], str],
    ) -> Grown:
        """Grow a field on columns (N, F), less the sequences that are held out."""
        rng = random_generator(self.random_state)
        inside, outside = _split(target.topology.n_sequences, self.held_out, rng, groups)
        memory = SegmentMemory.observed(target) if self.memory else None
        held = _part(table, target, outside) if len(outside) else None
        if held is not None:
            table, target = _part(table, target, inside)
        target = with_costs(target, self.class_weight, None, labels)
        with Progress(self.verbose, total=self.n_rounds, description="TreeCRF") as progress:

            def watch(step: Step) -> bool | None:
                progress.update(step)
                return self.callback(step) if self.callback is not None else None

            return grow_field(
                table, target, self._growth(), rng=rng, held_out=held, memory=memory, watch=watch, name_of=name_of
            )

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

    def _show(self, model: TreeChain) -> None:
        super()._show(model)
        self.rounds_ = model.rounds

    # --------------------------------------------------------------- prediction

    @property
    def field_(self) -> TreeField:
        """The trees and tables that were learnt."""
        return self._fitted.field

    def potentials(self, X: Any) -> Potentials:
        """The scores of X, for engines and comparisons of your own."""
        return self._fitted.potentials(X)

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        field, model, memory = self.field_, self._fitted, self.field_.memory
        refuse_window(self, model.window)
        edges = field.edge_trees if field.edge_trees is not None and len(field.edge_trees) else None
        tables = {"start": field.start, "end": field.end, "transitions": field.table}
        if memory is not None:  # trees score states; a path of them is one of pairs that follow each other
            tables |= {"start": field.start + memory.start, "transitions": field.table + memory.edge}
        if not is_dense(model.encoder):
            steps = single_steps(self, tables, varied=edges is not None, window=0, more=[field.prior])
            return steps if memory is None else StateSteps(steps, memory.space, **tables)
        size = len(field.prior)
        plain = {"start": np.zeros(size), "end": np.zeros(size), "transitions": np.zeros((size, size))}
        trees = TreeSteps(
            TreeTable.of_trees(field.trees),
            field.prior,
            names=dense_names(model.encoder),
            bias_last=True,
            edge_trees=None if edges is None else TreeTable.of_trees(edges),
            **(tables if memory is None else plain),
        )
        if memory is None:
            return trees
        return StateSteps(trees, memory.space, **tables)

    @property
    def transitions_(self) -> TransitionTable:
        """The table of label pairs, on top of which come trees on transitions; or of the states of a memory."""
        labels, memory = self._coder.labels, self.field_.memory
        if memory is None:
            return TransitionTable(labels, self.field_.table)
        pairs = zip(memory.before.tolist(), memory.space.label_of_state.tolist())
        names = [
            f"{labels[own]} at first" if before < 0 else f"{labels[own]} after {labels[before]}"
            for before, own in pairs
        ]
        return TransitionTable(names, self.field_.table + memory.edge)

    @property
    def feature_importances_(self) -> np.ndarray:
        """Share of each column (K,) in the gains of all cuts; of a window, at all its steps together.

        Files of earlier versions keep no gains; there it is the share in the number of cuts.

        >>> rng = np.random.default_rng(0)
        >>> X = [rng.normal(size=(30, 3)) for _ in range(5)]
        >>> model = TreeCRF(n_rounds=5).fit(X, [(x[:, 1] > 0).tolist() for x in X])
        >>> int(model.feature_importances_.argmax()), round(float(model.feature_importances_.sum()), 6)
        (1, 1.0)
        """
        field = self.field_
        every = [trees for trees in (field.trees, field.edge_trees) if trees is not None]
        total = np.sum([trees.importances() for trees in every], axis=0)
        total = total.reshape(2 * self._fitted.window + 1, -1).sum(axis=0)
        return np.asarray(total / total.sum() if total.sum() > 0 else total)

    def feature_importance(
        self, X: Sequences, y: Labels, n: int | None = 20, *, random_state: Seed = 0
    ) -> ImportanceList:
        """How much worse labels y are known where a column is shuffled: the n columns that matter most, with names.

        X is a list of arrays, best of recordings that the model has not met. The importance of a column is the fall
        of the mean log p of a step's label when the column's values are dealt anew among all steps.

        >>> rng = np.random.default_rng(0)
        >>> X = [rng.normal(size=(30, 3)) for _ in range(5)]
        >>> y = [(x[:, 1] > 0).tolist() for x in X]
        >>> TreeCRF(n_rounds=20).fit(X, y).feature_importance(X, y, n=1)[0].name
        'x[1]'
        """
        return permuted_importances(self, X, y, n, random_state)


def tabled(batch: Batch, reach: int) -> Table:
    """The table (N, F) that trees read: the columns of every step, and of those up to ``reach`` around it."""
    return windowed(matrix_of(batch.node), batch.topology, reach=reach)


def column_name(encoder: Encoder, batch: Batch, column: int) -> str:
    """The name of a column of the table that trees read: sparse columns, dense ones, then those of other steps."""
    width = batch.node.width + batch.node.n_dense
    block, own = divmod(column, width)
    name = encoder.node_name(own) if own < batch.node.width else encoder.dense_name(own - batch.node.width)
    offset = window_offsets((block + 1) // 2)[block]
    return f"{name} at {offset:+d}" if offset else name


def _split(
    n_sequences: int, share: float, rng: np.random.Generator, groups: list[Hashable] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Sequences to learn from and sequences held out, both rising; at least one group (a sequence) to learn from."""
    names = list(range(n_sequences)) if groups is None else list(dict.fromkeys(groups))
    n = min(round(share * len(names)), len(names) - 1)
    if share and n < 1:
        what = "sequences" if groups is None else "groups"
        raise InputError(
            f"held_out={share:g} of {len(names)} {what} leaves none to hold out. Give more {what}, or held_out=0."
        )
    order = rng.permutation(len(names)) if n else np.arange(len(names))
    if groups is None:
        return np.sort(order[n:]), np.sort(order[:n])
    out = {names[k] for k in order[:n].tolist()}
    held = np.array([group in out for group in groups], bool)
    return np.flatnonzero(~held), np.flatnonzero(held)


def _part(table: Table, target: Target, sequences: np.ndarray) -> tuple[Table, Target]:
    """Rows and target of some of the sequences."""
    assert isinstance(target.topology, Chains)
    topology, rows = chosen_nodes(target.topology, sequences)
    return table[rows], take_target(target, topology, sequences, rows)
