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

from crfield.core.checks import (
    Check,
    flag,
    function,
    integer,
    is_integer,
    loudness,
    number,
    one_of,
    random_generator,
    resolve_jobs,
    seed,
)
from crfield.core.parameters import learnt, parameter
from crfield.core.potentials import Potentials
from crfield.core.topology import Chains
from crfield.data.labels import LabelCoder, sequence_target
from crfield.errors import ConvergenceWarning
from crfield.estimators.base.fitted import json_value
from crfield.estimators.base.progress import Progress
from crfield.estimators.base.sequences import without_weightless
from crfield.estimators.chain.answers import ChainAnswers
from crfield.estimators.chain.model import ColumnModel
from crfield.estimators.export import MAX_LAG
from crfield.estimators.export.columns import column_steps
from crfield.estimators.export.step_scores import StepScorer
from crfield.estimators.export.stream import Features, LabelStream
from crfield.estimators.selected.candidates import Candidates
from crfield.estimators.selected.model import ChosenColumns, Selected
from crfield.features.relational.catalogue import Catalogue
from crfield.inference.decode import DECODERS
from crfield.report.weights import FeatureList, TransitionTable
from crfield.selection.choice import METHODS, Choice, Spans, automatic, automatic_method, chosen_path, method_options
from crfield.selection.methods.grafting import Watch
from crfield.selection.path import CRITERIA, SelectionPath, SelectionRound
from crfield.selection.problem import SelectionModel, SelectionProblem
from crfield.selection.scale import ColumnScale

RIDGES = (0.01, 0.1, 1.0, 10.0, 100.0)  # tried by refit_l2="auto"


MakeProblem = Callable[..., SelectionProblem]

catalogue_or_none = Check(
    "a catalogue, Specification.parse(text).expand(labels=…, agents=…), or None",
    lambda value: value is None or isinstance(value, Catalogue),
)
keywords = Check(
    "a dict of keywords of the method or None", lambda value: value is None or isinstance(value, Mapping)
)


def _holds_out(value: object) -> bool:
    if isinstance(value, tuple | list):
        return len(value) == 2
    return (is_integer(value) and value >= 2) or (isinstance(value, float) and 0 < value < 1)  # type: ignore[operator]


held_out = Check(
    "a share between 0 and 1, a number of folds ≥ 2, a pair (X, y) of held-out data, 'auto' or None",
    lambda value: value is None or (value == "auto" if isinstance(value, str) else _holds_out(value)),
)


def _plain_options(options: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Keywords of the method that are numbers and words; JSON holds no others."""
    if options is None:
        return None
    plain = {str(name): json_value(value) for name, value in options.items()}
    return {
        k: v for k, v in plain.items() if not isinstance(v, list | dict) and (v is not None or options[k] is None)
    }


class SelectedCRF(ChainAnswers[Selected], kind="selected_crf", model=Selected):
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
    rate : float, optional
        Steps a second of recordings given as arrays; needed where templates speak of velocities.
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

    method: str = parameter(one_of("auto", *METHODS), default="auto")
    options: Mapping[str, Any] | None = parameter(keywords, default=None, to_json=_plain_options)
    features: Catalogue | None = parameter(catalogue_or_none, default=None, stored=False)
    rate: float | None = parameter(number(above=0, meaning="steps a second") | None, default=None)
    transition_features: str | Sequence[Any] | None = parameter(default=None)
    feature_names: Sequence[str] | None = parameter(default=None)
    standardize: bool = parameter(flag, default=True)
    min_count: int = parameter(integer(1), default=1)
    intercept: bool = parameter(flag, default=True)
    transitions: bool = parameter(flag, default=True)
    boundaries: bool = parameter(flag, default=False)
    validation: Any = parameter(
        held_out, default="auto", to_json=lambda value: None if isinstance(value, tuple | list) else json_value(value)
    )
    criterion: str = parameter(one_of("auto", *CRITERIA), default="auto")
    refit_l2: str | float | None = parameter(number(0) | "auto" | None, default="auto")
    decode: str = parameter(one_of(*DECODERS), default="marginal")
    random_state: Any = parameter(seed, default=0)
    verbose: int = parameter(loudness, default=0)
    callback: Watch | None = parameter(function("a round"), default=None, stored=False)

    path_: SelectionPath = learnt()
    features_: FeatureList = learnt()
    strengths_: np.ndarray = learnt()
    n_features_: int = learnt()
    n_candidates_: int = learnt()
    refit_l2_: float | None = learnt()
    stop_reason_: str = learnt()
    n_iter_: int = learnt()
    objective_: float = learnt()
    converged_: bool = learnt()
    reported = ("objective_", "n_iter_", "n_features_", "converged_", "stop_reason_")

    def _check_together(self) -> None:
        method_options(self._method(Chains.from_lengths([])), self.options)

    def _method(self, chains: Chains) -> str:
        if self.method != "auto":
            return self.method
        return automatic_method(chains, self.options, computed=self.features is not None)

    # ------------------------------------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Select features and train; ``sample_weight`` has one number for each sequence, 0 leaves it out."""
        self.check()
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        labels = LabelCoder().fit(y)
        work = Candidates(
            X,
            labels,
            catalogue=self.features,
            rate=None if self.rate is None else float(self.rate),
            transition_features=self.transition_features,
            feature_names=self.feature_names,
        )
        make = self._problems(work, y, sample_weight)
        chosen = self._chosen(make, work.columns.chains)
        final, ridge, problem = self._refitted(make, chosen)
        scores, features, strengths = work.finished(problem, final)
        self.n_features_, self.n_iter_, self.stop_reason_ = len(features), chosen.best.number, chosen.path.stop_reason
        self.objective_, self.converged_ = float(final.value), bool(final.converged)
        self._learn(Selected(labels, scores, chosen.path, features, strengths, int(problem.n_candidates), ridge))
        if not final.converged:
            warnings.warn(
                f"the last training of {len(features)} features stopped before its tolerance was met. Standardise "
                "the columns, or pass a larger refit_l2.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _problems(self, work: Candidates, y: Any, sample_weight: Any) -> MakeProblem:
        """What makes the problem of selection on all of X, or on spans of it with others held out."""
        target = sequence_target(work.columns.chains, work.labels, y, sample_weight)
        held = None
        if isinstance(self.validation, tuple | list):
            other = work.on(self.validation[0])
            held = other, sequence_target(other.chains, work.labels, self.validation[1], None)

        def make(
            spans: Spans | None = None, held_spans: Spans | None = None, scale: ColumnScale | None = None
        ) -> SelectionProblem:
            return SelectionProblem(
                work.columns,
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

        return make

    def _chosen(self, make: MakeProblem, chains: Chains) -> Choice:
        """The path of the method, and the round that held-out data chose."""
        method = self._method(chains)
        how: float | int | None
        how, criterion = automatic(method, chains)
        if self.validation is None or isinstance(self.validation, tuple | list):
            how = None
        elif self.validation != "auto":
            how = self.validation
        with Progress(self.verbose, description=f"SelectedCRF ({method})") as progress:
            return chosen_path(
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

    @staticmethod
    def _watch(progress: Progress, callback: Watch | None) -> Watch:
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

    def _refitted(self, make: MakeProblem, chosen: Choice) -> tuple[SelectionModel, float | None, SelectionProblem]:
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

    def _show(self, model: Selected) -> None:
        super()._show(model)
        self.path_, self.features_, self.strengths_ = model.path, model.features, model.strengths
        self.n_candidates_, self.refit_l2_ = model.n_candidates, model.refit_l2
        if isinstance(model.scores, ChosenColumns) and self.features is None:  # it comes out of a file
            self.features, self.rate = model.scores.catalogue, model.scores.rate

    def potentials(self, X: Any) -> Potentials:
        """The scores of X, for engines and comparisons of your own."""
        return self._fitted.scores.potentials(X, n_jobs=resolve_jobs(self.n_jobs))

    @property
    def choice_(self) -> str:
        """What was chosen and why: method, size, held-out loss or errors beside those of no features, and ridge."""
        self._fitted  # noqa: B018  (says so where nothing is fitted)
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
        model, labels = self._fitted.scores, self._coder.labels
        if isinstance(model, ColumnModel):
            return TransitionTable(labels, model.layout.transitions(model.weights))
        return TransitionTable(labels, model.steps.transitions)

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        model = self._fitted.scores
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
        features = self._own_features() if features is None else features
        return super().stream(lag=lag, viterbi=viterbi, max_lag=max_lag, features=features, history=history)

    def _own_features(self) -> Features | None:
        """What computes the chosen columns of a model of recordings."""
        model = self._fitted.scores
        if not isinstance(model, ChosenColumns):
            return None
        return cast(Features, model.catalogue.stream(model.columns, rate=model.rate))

    def _exported_parts(self, features: Any) -> tuple[StepScorer, Any]:
        return super()._exported_parts(self._own_features() if features is None else features)


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
