"""`BestChain` and `choose`: the best recogniser of sequences without being an expert.

Which model labels recordings best depends on the recordings: where there are many people and few columns it is
another than where scripts repeat. `BestChain` runs the reasonable ones through inner folds of whole groups (people,
trials, places), prints one table, and is then the model that did best there, or the average of the best few where
that did better. Nothing is decided by training scores, and nothing by anybody who is in the part that is asked.

What comes out is one chain: probabilities of labels at single steps, of one source or the mean of several
(`crfield.estimators.choice.sources`), and one decoding of them (`crfield.estimators.choice.decoding`). So it has all
answers of a chain: labels, probabilities, n best, samples, likelihoods. It is saved with its sources within.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Hashable, Sequence
from types import SimpleNamespace
from typing import Any, Self

import numpy as np

from crfield.core.checks import flag, integer, loudness, number
from crfield.core.parameters import learnt, parameter
from crfield.core.potentials import Potentials
from crfield.core.typing import Labels, Sequences
from crfield.data.labels import LabelCoder, sequence_target
from crfield.data.large import refuse_large
from crfield.errors import DataWarning, InputError, LabelError, ShapeError
from crfield.estimators.base.progress import Progress
from crfield.estimators.chain.answers import ChainAnswers
from crfield.estimators.choice.columns import ChosenColumns
from crfield.estimators.choice.decoding import Decoding
from crfield.estimators.choice.folds import GroupFolds, Width
from crfield.estimators.choice.importance import at_step, mixed_up
from crfield.estimators.choice.model import ChosenModel, listed, split_rows
from crfield.estimators.choice.search import Search, Taken, families_named
from crfield.estimators.choice.sources import FAMILIES, SINGLE_STEPS, Source
from crfield.estimators.choice.streams import StateStream, StateStreams
from crfield.estimators.export import MAX_LAG
from crfield.estimators.export.step_scores import StepScorer, single_steps
from crfield.estimators.export.stream import Features
from crfield.features.detect import encoder_for
from crfield.report.comparisons.models import ModelChoice
from crfield.report.importance import ImportanceList

MANY_COLUMNS = 60  # up to so many "auto" takes all
WIDTHS: tuple[Width, ...] = ((MANY_COLUMNS, 0.9), (120, 0.98))  # what it tries where there are more
SEVERAL = 0.95  # how alike two of a given number of columns may be


class BestChain(ChainAnswers[ChosenModel], kind="best_chain", model=ChosenModel):
    """The model of sequences that does best on held-out groups, or the average of the best few.

    X is a list of sequences: 2-D arrays (steps, columns), or anything else that `ChainCRF` reads as columns without
    templates. In y a step may be unknown (``None``). ``fit`` takes ``groups``, the person, trial or place of every
    sequence.

    Parameters
    ----------
    candidates : "all" or list of str
        Families to try: "logistic regression", "Gaussian", "boosting", "chain on columns", "latent chain",
        "chain of trees", "selected chain", "segments". The first of them always runs.
    budget : float or None
        CPU seconds of this process for ``fit``, refitting included, about. Families come in the order of
        ``candidates``, the cheap ones first for "all"; one that would take more than is left is not run, and its row
        says so. None runs all, and the same data give the same model; with a budget the speed of the machine decides
        too.
    folds : int
        Inner folds, of whole groups; fewer where there are fewer groups.
    average : bool
        Whether the mean of the probabilities of the best few may be taken, where that is better in the folds.
    n_columns : "auto", int or None
        How many columns candidates get, those that tell labels apart best and do not repeat each other; None is all.
        "auto" is all of up to 60, and else 60 or 120, as the first family does better with.
    decode : "viterbi" or "marginal"
        What ``predict`` returns: the best labelling as a whole, or the best label of each step. Settings are chosen
        for the former.
    n_jobs : int or None
        Threads of inference; -1 for all processors.
    random_state : int
        How groups are dealt to folds, and whatever candidates draw.
    verbose : int
        1 shows a progress line, 2 a line for every family.

    Attributes
    ----------
    table_ : ModelChoice
        A row for every candidate, with intervals over groups and CPU seconds, and those that were not run.
    choice_ : str
        What was chosen and why.
    members_ : list of str
        Families whose probabilities are averaged; one where a single model was chosen.
    best_ : list of estimators
        Their fitted models, for columns as `columns_` names them.
    columns_ : list of list of str
        Names of the columns that each of them reads.
    classes_, converged_

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = [np.repeat(rng.permutation(["sit", "walk", "stand"]), 20) for _ in range(6)]
    >>> X = [np.stack([own == "walk", own == "sit"], axis=1) + rng.normal(scale=1.0, size=(60, 2)) for own in y]
    >>> model = BestChain(candidates=["logistic regression", "Gaussian"]).fit(X, y, groups=["ann", "bob", "cy"] * 2)
    >>> model.score(X, y) > 0.8
    True
    >>> [row.name for row in model.table_.rows][:3]
    ['logistic regression', 'logistic regression + Markov model', 'logistic regression + Markov model, memory']
    """

    candidates: str | Sequence[str] = parameter(families_named, default="all")
    budget: float | None = parameter(number(0, meaning="CPU seconds") | None, default=None)
    folds: int = parameter(integer(2), default=3)
    average: bool = parameter(flag, default=True)
    n_columns: str | int | None = parameter(integer(1) | "auto" | None, default="auto")
    random_state: int = parameter(integer(0), default=0)
    verbose: int = parameter(loudness, default=0)

    table_: ModelChoice = learnt()
    choice_: str = learnt()
    members_: list[str] = learnt()
    converged_: bool = learnt()
    reported = ()

    # ------------------------------------------------------------------------------------------------ fitting

    def fit(self, X: Sequences, y: Labels, groups: Sequence[Hashable] | None = None) -> Self:
        """Try the candidates on inner folds of groups, and train what was chosen on everything.

        ``groups`` has one value for each sequence; without it every sequence is a group of its own.
        """
        self.check()
        labels, encoder = LabelCoder().fit(y), encoder_for(X)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "numeric features differ widely", DataWarning)  # they are scaled here
            batch = encoder.fit(X)
        refuse_large(batch, encoder)
        target = sequence_target(batch.topology, labels, y, None)
        if labels.n_labels < 2:
            raise LabelError(f"y holds one label, {labels.labels[0]!r}: there is nothing to choose between.")
        rows = split_rows(batch)
        codes = np.split(target.labels.astype(np.int64), batch.topology.offsets[1:-1])
        named = list(range(len(rows))) if groups is None else list(groups)
        if len(named) != len(rows):
            raise ShapeError(f"groups must have one value for each of {len(rows)} sequences, got {len(named)}.")
        used = [k for k, own in enumerate(codes) if (own >= 0).any()]  # the others can neither teach nor judge
        inner = GroupFolds.dealt(
            [rows[k] for k in used],
            [codes[k] for k in used],
            [named[k] for k in used],
            int(self.folds),
            n_labels=labels.n_labels,
            random_state=int(self.random_state),
        )
        taken, choice, thin = self._searched(inner)
        columns, sources = self._refitted(taken, inner, thin)
        decoding = Decoding.counted(inner.codes, labels.n_labels, taken.decoding)
        return self._learn(ChosenModel(labels, encoder, columns, sources, decoding, choice))

    def _searched(self, inner: GroupFolds) -> tuple[Taken, ModelChoice, int]:
        families = list(FAMILIES) if isinstance(self.candidates, str) else list(self.candidates)
        width = inner.rows[0].shape[1]
        widths: list[Width] = [(None, 1.0)]
        if self.n_columns == "auto":
            if width > MANY_COLUMNS:
                widths = list(WIDTHS)
        elif self.n_columns is not None and width > int(self.n_columns):
            widths = [(int(self.n_columns), SEVERAL)]
        began = time.perf_counter()
        with Progress(self.verbose, total=len(families), description="BestChain") as progress:

            def after(done: int, best: float) -> None:
                seconds = time.perf_counter() - began
                progress.update(
                    SimpleNamespace(n_iter=done, value=best, gradient_norm=0.0, n_active=done, seconds=seconds)
                )

            search = Search(
                inner,
                families,
                widths,
                budget=None if self.budget is None else float(self.budget),
                average=bool(self.average),
                seed=int(self.random_state),
                after=after,
            )
            return *search.run(), search.thin

    def _refitted(
        self, taken: Taken, inner: GroupFolds, thin: int
    ) -> tuple[tuple[ChosenColumns, ...], tuple[Source, ...]]:
        """What was chosen, trained on all sequences."""
        made: dict[Width, ChosenColumns] = {}
        columns, sources = [], []
        for entry in taken.entries:
            if entry.width not in made:
                most, alike = entry.width
                made[entry.width] = ChosenColumns.learnt(inner.rows, inner.codes, most=most, most_alike=alike)
            own = made[entry.width]
            rows = [own.apply(one) for one in inner.rows]
            columns.append(own)
            sources.append(
                Source.fitted(entry.family, entry.setting, rows, inner.codes, seed=int(self.random_state), thin=thin)
            )
        return tuple(columns), tuple(sources)

    def _show(self, model: ChosenModel) -> None:
        super()._show(model)
        self.table_, self.converged_ = model.choice, True
        self.choice_ = " ".join([f"{model.choice.chosen}:", *model.choice.why])
        self.members_ = [source.family for source in model.sources]

    # ------------------------------------------------------------------------------------------------ answers

    @property
    def best_(self) -> list[Any]:
        """The fitted models that were chosen."""
        return [source.model for source in self._fitted.sources]

    @property
    def columns_(self) -> list[list[str]]:
        """Names of the columns that each of them reads, the one that tells most first."""
        model = self._fitted
        names = model.names
        return [[names[k] for k in columns.numbers.tolist()] for columns in model.columns]

    def potentials(self, X: Sequences) -> Potentials:
        """The scores of X over states of the decoding, for engines and comparisons of your own."""
        model = self._fitted
        batch = model.encoder.encode(X)
        return model.decoding.potentials(model.log_chances(batch), batch.topology)

    def step_chances(self, X: Sequences) -> np.ndarray:
        """Probabilities before the decoding: a 1-D object array of arrays (steps, classes)."""
        model = self._fitted
        batch = model.encoder.encode(X)
        out = np.empty(batch.topology.n_sequences, dtype=object)
        for k, own in enumerate(np.split(np.exp(model.log_chances(batch)), batch.topology.offsets[1:-1])):
            out[k] = own / own.sum(axis=1, keepdims=True)
        return out

    def column_importance(self, X: Sequences, n: int | None = 20) -> ImportanceList:
        """The n columns whose mixing up among the steps of X changes the probabilities most, whatever was chosen."""
        model = self._fitted
        return mixed_up(model, model.encoder.encode(X), n)

    def explain_step(self, x: Any, step: int, n: int | None = 10) -> ImportanceList:
        """The n columns that say most for (above 0) or against the most probable label of one step of a sequence.

        It is the label before the decoding, `step_chances`; amounts are differences of log-probabilities.
        """
        model = self._fitted
        return at_step(model, model.encoder.encode([x]), step, n)

    # ------------------------------------------------------------------------------------------------ streams

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        model = self._fitted
        if not model.single_steps:
            whole = [source.family for source in model.sources if source.family not in SINGLE_STEPS]
            raise InputError(
                f"what was chosen cannot stream: {listed(whole)} look at whole sequences. Choose among "
                f"candidates={list(SINGLE_STEPS)!r} for a stream."
            )
        decoding = model.decoding
        tables = {"start": decoding.start, "end": np.zeros(len(decoding.start)), "transitions": decoding.edge}
        more = [array for own in model.columns for array in own.state().arrays.values()]
        return single_steps(self, tables, varied=False, window=0, more=more)

    def stream(
        self,
        *,
        lag: int = 0,
        viterbi: bool = False,
        max_lag: int = MAX_LAG,
        features: Features | None = None,
        history: int | None = None,
    ) -> StateStream:
        """A `LabelStream`: push one observation at a time; the same numbers as offline, by the same chain.

        Options as for `ChainCRF.stream`. InputError where a member looks at whole sequences.
        """
        return StateStream(
            self._step_scorer(history=history),
            self._coder,
            self._fitted.states,
            lag=lag,
            viterbi=viterbi,
            max_lag=max_lag,
            features=features,
        )

    def streams(
        self,
        n_streams: int,
        *,
        lag: int = 0,
        viterbi: bool = False,
        max_lag: int = MAX_LAG,
        history: int | None = None,
    ) -> StateStreams:
        """`LabelStreams`: many streams advanced by one call; options as in `stream`."""
        return StateStreams(
            self._step_scorer(history=history),
            self._coder,
            self._fitted.states,
            n_streams,
            lag=lag,
            viterbi=viterbi,
            max_lag=max_lag,
        )

    def export(self, path: Any, *, name: str | None = None, max_lag: int = MAX_LAG, features: Any = None) -> None:
        """InputError: one header holds one table of weights. Members may be exported, ``best_[0].export(path)``."""
        raise InputError(
            "BestChain cannot be exported as one header. Export a member that can be: best_[0].export(path), with "
            "columns as columns_ names them."
        )


def choose(
    X: Sequences, y: Labels, groups: Sequence[Hashable] | None = None, *, budget: float | None = None, **options: Any
) -> BestChain:
    """The model that does best on held-out groups, fitted: ``BestChain(budget=…, **options).fit(X, y, groups)``.

    ``print(choose(X, y, groups).table_)`` is the comparison; the model itself predicts, is saved and streams.

    >>> rng = np.random.default_rng(0)
    >>> y = [np.repeat(rng.permutation(["sit", "walk"]), 15) for _ in range(6)]
    >>> X = [(own == "walk")[:, None] + rng.normal(scale=0.5, size=(30, 1)) for own in y]
    >>> model = choose(X, y, candidates=["logistic regression", "Gaussian"])
    >>> model.table_.n_groups, len(model.predict(X))
    (6, 6)
    """
    return BestChain(budget=budget, **options).fit(X, y, groups)
