"""`SelectedCRF`: a chain CRF that chooses its features out of many candidates.

Thousands or millions of candidates, a few dozen weights in the end: a method of `crfield.selection` walks from the
empty model to larger ones, held-out sequences say where to stop, and the chosen set is trained once more on all data
under a ridge. What is left is an ordinary chain CRF that is quick to compute, can be read, and can follow a stream.

The default for columns walks down the ℓ1 path and judges each set by weights that are fitted to it afresh, in folds,
by the loss: where twenty of 2,000 columns are true it finds most of these and hardly another (`crfield reproduce
sparse-columns`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Self, cast

import numpy as np

from crfield.core.checks import random_generator, resolve_jobs
from crfield.core.potentials import Potentials
from crfield.data.labels import LabelCoder
from crfield.errors import ConvergenceWarning, InputError, NotFittedError
from crfield.estimators.base.progress import Progress
from crfield.estimators.base.sequences import without_weightless
from crfield.estimators.chain.answers import ChainAnswers
from crfield.estimators.chain.model import ColumnModel
from crfield.estimators.export.step_scores import StepScorer, column_steps
from crfield.estimators.export.stream import MAX_LAG, Features, LabelStream
from crfield.estimators.selected.candidates import Candidates
from crfield.estimators.selected.checks import check_selected_parameters
from crfield.estimators.selected.model import ChosenColumns
from crfield.features.relational.catalogue import Catalogue
from crfield.report.weights import TransitionTable
from crfield.selection.choice import Choice, automatic, automatic_method, chosen_path
from crfield.selection.methods.grafting import Watch
from crfield.selection.path import SelectionRound
from crfield.selection.problem import SelectionModel, SelectionProblem
from crfield.selection.scale import ColumnScale

RIDGES = (0.01, 0.1, 1.0, 10.0, 100.0)  # tried by refit_l2="auto"


class SelectedCRF(ChainAnswers[Any]):
    """Chain CRF with features selected out of many candidates.

    X is a list of sequences in any form that `ChainCRF` reads (2-D arrays, CSR matrices, dicts, lists of strings),
    each column with each label being a candidate. Or, with ``features``, a list of recordings: arrays (steps, agents,
    axes) or `Recordings` of one each, and the candidates are what the catalogue expands to. They are computed when
    needed, so there may be millions. In y a step may be unknown (``None``) or one of a set.

    Parameters
    ----------
    method : str
        "relaxed" (sets of the ℓ1 path, fitted again), "grafting", "l1-path" or another name of
        `crfield.selection.choice.METHODS`. "auto" is "relaxed" for columns of up to 16,666 steps, "grafting" for
        longer data, for the candidates of a catalogue, and where ``options`` are those of grafting.
    options : dict, optional
        Keywords of the method: ``{"max_features": 50}``, ``{"decay": 0.8}`` for ℓ1, ``{"m": 8}`` for grafting.
    features : Catalogue, optional
        An expanded `Specification`; its labels are replaced by those of y, matched by their text.
    rate : float
        Steps a second of recordings given as arrays.
    transition_features : "all" or list, optional
        Columns that are also linked to pairs of labels: names of dict entries, or column numbers.
    feature_names : list of str, optional
        Names of the columns of arrays.
    standardize : bool
        Select on columns of mean 0 and deviation 1, as slopes and penalties need it. Weights are told in the units
        of the data all the same.
    min_count : int
        Columns of two values that change on fewer steps are no candidates.
    intercept, transitions, boundaries : bool
        Weights that are always there: of labels, of pairs of labels, of labels at the first and the last step.
    validation : "auto", float, int, None or (X, y)
        How a round of the path is chosen: a share of the sequences held out (of each sequence's time where there are
        fewer than four), a number of folds, nothing (the last round), or data of your own. "auto" is five folds for
        "relaxed", fewer where there are more than 10,000 steps; a quarter for longer data, and for other methods.
    criterion : "auto", "error" or "nll"
        What is judged: share of wrong labels, or −log p; "auto" is −log p for "relaxed" and errors otherwise.
    refit_l2 : "auto", float or None
        Ridge of the last training of the chosen set on all of X. "auto" tries several where something is held out
        (and on the ℓ1 path its own penalty), and is 1 otherwise; None keeps the weights of the path.
    decode : "viterbi" or "marginal"
        What ``predict`` returns: the best labelling as a whole, or the best label of each step.
    n_jobs : int or None
        Threads; -1 for all processors.
    random_state : int, Generator or None
        Which sequences are held out.
    verbose : int
        1 shows a progress line, 2 a line for every round.
    callback : callable(round), optional
        Called with each `SelectionRound`; returning True ends the selection.

    Attributes
    ----------
    path_ : SelectionPath
        What entered when, with held-out scores and processor time.
    choice_ : str
        What was chosen and why, in a sentence.
    features_ : FeatureList
        Names, labels and weights (for columns as given) of what was chosen, strongest first.
    strengths_ : (K,) array
        Their weights for standardised columns, in the same order.
    n_features_, n_candidates_, refit_l2_, stop_reason_, n_iter_, objective_, converged_, classes_

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = [np.repeat(rng.integers(0, 2, 6), 5) for _ in range(8)]
    >>> X = [rng.normal(size=(30, 50)) + np.outer(labels, np.arange(50) == 7) * 3 for labels in y]
    >>> model = SelectedCRF(feature_names=[f"sensor {k}" for k in range(50)]).fit(X, y)
    >>> {item.name for item in model.features_}, model.score(X, y) > 0.9
    ({'sensor 7'}, True)
    >>> print(model.choice_)
    relaxed: ... of 100 candidates, the least loss in 5 folds: ... a step, ... without features; ridge ...
    """

    def __init__(
        self,
        *,
        method: str = "auto",
        options: Mapping[str, Any] | None = None,
        features: Catalogue | None = None,
        rate: float = 1.0,
        transition_features: str | Sequence[Any] | None = None,
        feature_names: Sequence[str] | None = None,
        standardize: bool = True,
        min_count: int = 1,
        intercept: bool = True,
        transitions: bool = True,
        boundaries: bool = False,
        validation: Any = "auto",
        criterion: str = "auto",
        refit_l2: str | float | None = "auto",
        decode: str = "marginal",
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
        callback: Callable[[SelectionRound], bool | None] | None = None,
    ) -> None:
        self.method = method
        self.options = options
        self.features = features
        self.rate = rate
        self.transition_features = transition_features
        self.feature_names = feature_names
        self.standardize = standardize
        self.min_count = min_count
        self.intercept = intercept
        self.transitions = transitions
        self.boundaries = boundaries
        self.validation = validation
        self.criterion = criterion
        self.refit_l2 = refit_l2
        self.decode = decode
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    # ------------------------------------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Select features and train; ``sample_weight`` has one number for each sequence, 0 leaves it out."""
        check_selected_parameters(self.get_params(deep=False))
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        coder = LabelCoder().fit(y)
        work = Candidates(self, X, coder)
        target = work.target(work.candidates.chains, y, sample_weight)
        if not target.topology.n_nodes:
            raise InputError("X holds no steps at all; at least one sequence with one step is needed to train.")
        given = self.validation if isinstance(self.validation, tuple | list) else None
        held = None
        if given is not None:
            other = work.on(given[0])
            held = other, work.target(other.chains, given[1], None)

        def make(spans: Any = None, held_spans: Any = None, scale: ColumnScale | None = None) -> SelectionProblem:
            return SelectionProblem(
                work.candidates,
                target,
                spans=spans,
                held_spans=held_spans,
                held_out=held if spans is None and held_spans is None else None,
                standardize=self.standardize,
                min_count=self.min_count,
                intercept=self.intercept,
                transitions=self.transitions,
                boundaries=self.boundaries,
                n_jobs=resolve_jobs(self.n_jobs),
                scale=scale,
            )

        chains = work.candidates.chains
        how: float | int | None
        method = self.method
        if method == "auto":
            method = automatic_method(chains, self.options, computed=self.features is not None)
        how, criterion = automatic(method, chains)
        if given is not None or self.validation is None:
            how = None
        elif self.validation != "auto":
            how = self.validation
        with Progress(self.verbose, description=f"SelectedCRF ({method})") as progress:
            chosen = chosen_path(
                make,
                chains,
                method,
                validation=how,
                criterion=criterion if self.criterion == "auto" else self.criterion,
                options=self.options or {},
                rng=random_generator(self.random_state),
                watch=self._watch(progress, self.callback),
                watch_folds=self._watch(progress, None),
            )
        path, best = chosen.path, chosen.best
        final, ridge, problem = self._refitted(make, chosen)
        model, features, strengths = work.finished(problem, final)
        self._model, self._labels_known = model, coder
        self.classes_ = coder.classes_
        self.path_, self.features_, self.strengths_ = path, features, strengths
        self.n_features_, self.n_candidates_ = len(features), int(problem.n_candidates)
        self.refit_l2_ = ridge
        self.n_iter_ = best.number
        self.objective_ = float(final.value)
        self.stop_reason_ = path.stop_reason
        self.converged_ = bool(final.converged)
        if not final.converged:
            warnings.warn(
                f"the last training of {len(features)} features stopped before its tolerance was met. Standardise "
                "the columns, or pass a larger refit_l2.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    @staticmethod
    def _watch(progress: Progress, callback: Callable[[SelectionRound], bool | None] | None) -> Watch:
        def watch(one: SelectionRound) -> bool | None:
            progress.update(
                SimpleNamespace(
                    n_iter=one.number,
                    value=one.model.loss,
                    gradient_norm=one.largest,
                    n_active=one.n_features,
                    seconds=one.seconds,
                )
            )
            return callback(one) if callback is not None else None

        return watch

    def _refitted(
        self, make: Callable[..., SelectionProblem], chosen: Choice
    ) -> tuple[SelectionModel, float | None, SelectionProblem]:
        """The chosen set trained on everything, the ridge it was trained with, and the problem that it is of.

        A ridge is judged as the round was: in each fold on the set that was found in it without what it holds out.
        """
        best, problem = chosen.best, chosen.problem
        if self.refit_l2 is None:
            return best.model, None, problem
        ridge: float | None
        if self.refit_l2 != "auto":
            ridge = float(self.refit_l2)
        elif not chosen.judges or not best.n_features:
            ridge = 1.0
        else:
            tried: list[float | None] = [*RIDGES, None] if best.penalty > 0 else [*RIDGES]
            scores = [_tried(*judge, tried) for judge in chosen.judges]
            ridge = tried[int(np.argmin(np.mean(scores, axis=0)))]
        whole = make(scale=problem.scale)
        return _trained(whole, best.model, best, ridge, whole.n_steps / problem.n_steps), ridge, whole

    # ------------------------------------------------------------------------------------------------ answers

    @property
    def _coder(self) -> LabelCoder:
        coder: LabelCoder | None = getattr(self, "_labels_known", None)
        if coder is None:
            raise NotFittedError("this SelectedCRF is not fitted yet. Call fit(X, y) first, or load a model file.")
        return coder

    @property
    def _fitted(self) -> ColumnModel | ChosenColumns:
        self._coder  # noqa: B018  (says so where nothing is fitted)
        model: Any = self._model
        return model

    def _states(self) -> None:
        return None

    def potentials(self, X: Any) -> Potentials:
        """The scores of X, for engines and comparisons of your own."""
        return self._fitted.potentials(X, n_jobs=resolve_jobs(self.n_jobs))

    @property
    def choice_(self) -> str:
        """What was chosen and why: method, size, held-out loss or errors beside those of no features, and ridge."""
        self._coder  # noqa: B018
        path, best, first = self.path_, self.path_[self.n_iter_], self.path_[0]
        of = f" of {self.n_candidates_:,} candidates" if self.n_candidates_ else ""
        told = f"{path.method}: {self.n_features_}{of}"
        if np.isnan(best.held_error):
            told += f", the last of {len(path)} rounds ({self.stop_reason_}), nothing being held out"
        else:
            error = path.criterion == "error"
            where = self.stop_reason_.removeprefix("best of ") if "folds" in self.stop_reason_ else "held-out steps"
            what = "the fewest errors" if error else "the least loss"
            now, before = (f"{r.held_error if error else r.held_nll:.3g}" for r in (best, first))
            told += f", {what} in {where}: {now} a step, {before} without features"
        if self.refit_l2 is None:
            return told + "; weights of the path"
        penalty = f"ridge {self.refit_l2_:g}" if self.refit_l2_ is not None else "under the ℓ1 penalty of the path"
        return f"{told}; {penalty} in the last training"

    @property
    def transitions_(self) -> TransitionTable:
        """Weights of pairs of labels that hold everywhere; those of features come on top."""
        model, labels = self._fitted, self._coder.labels
        if isinstance(model, ColumnModel):
            return TransitionTable(labels, model.layout.transitions(model.weights))
        return TransitionTable(labels, model.steps.transitions)

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        model = self._fitted
        return column_steps(model, history=history) if isinstance(model, ColumnModel) else model.steps

    def stream(
        self,
        *,
        lag: int = 0,
        viterbi: bool = False,
        max_lag: int = MAX_LAG,
        features: Features | None = None,
        history: int | None = None,
    ) -> LabelStream:
        """A `LabelStream`; a model of recordings takes positions (agents, axes) and computes its features itself."""
        model = self._fitted
        if features is None and isinstance(model, ChosenColumns):
            features = cast(Features, model.catalogue.stream(model.columns, rate=model.rate))
        return super().stream(lag=lag, viterbi=viterbi, max_lag=max_lag, features=features, history=history)

    def save(self, path: Any) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. Nothing in it is ever executed."""
        from crfield.estimators.selected.file import save_selected

        self._fitted  # noqa: B018
        save_selected(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return getattr(self, "_labels_known", None) is not None


def _tried(problem: SelectionProblem, best: SelectionRound, tried: list[float | None]) -> list[float]:
    """Held-out loss of each ridge, every fit beginning where the last one ended."""
    model, found = best.model, []
    for ridge in tried:
        model = _trained(problem, model, best, ridge, 1.0)
        found.append(problem.held_out(model).nll)
    return found


def _trained(
    problem: SelectionProblem, start: SelectionModel, best: SelectionRound, ridge: float | None, growth: float
) -> SelectionModel:
    """The chosen set under a ridge or, where that is None, under the ℓ1 penalty that it was found with.

    The loss is a sum over steps, so the penalty grows with them.
    """
    if ridge is None:
        return problem.fit(best.model.active, start, l1=growth * best.penalty, max_iter=300)
    return problem.fit(best.model.active, start, l2=ridge, max_iter=300)
