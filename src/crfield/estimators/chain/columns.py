"""`ColumnChain` and `TrainedChain`: what `ChainCRF`, `MEMM` and `MEstimatedCRF` have in common.

All three hold a `ColumnModel` and answer from it; `TrainedChain` is trained by a solver, in memory, from disk or part
by part. They differ in what is minimised and in how scores become probabilities.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Hashable
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from crfield.core.checks import is_number, resolve_jobs
from crfield.core.graphs import Graphs
from crfield.core.parameters import learnt
from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch
from crfield.data.label_growth import grown_labels
from crfield.data.labels import LabelCoder
from crfield.data.large import refuse_large
from crfield.errors import InputError, ModelFileError
from crfield.estimators.base.groups import Paired
from crfield.estimators.base.sequences import sequence_target, without_weightless
from crfield.estimators.chain.answers import ChainAnswers
from crfield.estimators.chain.calibration import cooled, fitted_temperature
from crfield.estimators.chain.early_stopping import HeldOut, check_validation
from crfield.estimators.chain.model import ColumnModel
from crfield.estimators.chain.options import SolverOptions, check_label_functions
from crfield.estimators.chain.partial_fit import begun, grown, take_pass
from crfield.estimators.chain.problem import (
    ON_DISK,
    ChainProblem,
    column_parts,
    grown_columns,
    in_memory,
    of_functions,
    on_disk,
    without_runs,
)
from crfield.estimators.chain.training import chain_penalty, divide, train
from crfield.estimators.explain.margins import ChainExplanations
from crfield.estimators.explain.weights import strongest_features
from crfield.estimators.export.step_scores import StepScorer, column_steps
from crfield.features.detect import encoder_from_state
from crfield.features.growth import grow
from crfield.inference.decode import check_decoder
from crfield.objectives.contrast import Contrast
from crfield.report.weights import FeatureList, TransitionTable
from crfield.storage.encoded import EncodedDataset
from crfield.storage.files import same_file
from crfield.storage.state import State
from crfield.training.chain.higher_order import RunParts
from crfield.training.chain.partial_fit import Ongoing
from crfield.training.chain.plan import ChainParts, Plan, check_solver_options, plan_chain
from crfield.training.full_batch import Objective


class ColumnChain(ChainExplanations, Paired[Any], ChainAnswers[Any]):
    """A chain whose scores are weighted columns."""

    lazy = True

    objective_: float = learnt()
    n_iter_: int = learnt()
    n_evaluations_: int = learnt()
    converged_: bool = learnt()
    stop_reason_: str = learnt()
    plan_: Plan = learnt()
    source_: dict[str, str] = learnt()  # how the command line read the files of training, where it did

    # --------------------------------------------------------------- prediction

    def potentials(self, X: Any) -> Potentials:
        """The scores of X, for engines and comparisons of your own."""
        return self._fitted.potentials(X, n_jobs=resolve_jobs(self.n_jobs))

    def _codes(self, X: Any, known: Any = None) -> tuple[np.ndarray, Chains | Graphs]:
        if known is None and check_decoder(self.decode) != "marginal":  # from packed weights, no scores written out
            return self._fitted.best_paths(X, n_jobs=resolve_jobs(self.n_jobs))
        return super()._codes(X, known)

    def _forbidden(self) -> np.ndarray | None:
        return self._fitted.forbidden

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        return column_steps(self._columns("stream"), history=history)

    # -------------------------------------------------------------- explanation

    @property
    def coef_(self) -> np.ndarray:
        """(W,) the weights, read-only; `top_features` and ``transitions_`` give them names."""
        weights: np.ndarray = self._fitted.weights.view()
        weights.flags.writeable = False
        return weights

    @property
    def transitions_(self) -> TransitionTable:
        """Transition weights; NaN where a pair of labels has none."""
        model = self._columns("transitions_")
        return TransitionTable(model.labels.labels, model.layout.transitions(model.weights))

    def top_features(self, n: int = 20, *, label: Hashable | None = None) -> FeatureList:
        """The features of largest absolute weight, with their names; of one label if given.

        Only the names that are shown are made.
        """
        model = self._columns("top_features")
        return strongest_features(model, model.labels, n, label)

    def explain_plan(self) -> str:
        """What was trained and by which solver, and why, in a sentence or two.

        >>> from crfield import ChainCRF
        >>> print(ChainCRF().fit([[["sunny"], ["rainy"]]], [["walk", "read"]]).explain_plan())
        Objective: likelihood. Solver: lbfgs, since ...
        """
        self._fitted  # noqa: B018  (says so where nothing is fitted)
        return str(self.plan_)

    def _columns(self, name: str) -> ColumnModel:
        model = self._fitted
        if not isinstance(model, ColumnModel):
            raise InputError(f"{name} is for models with columns; this one has functions of two labels: see coef_.")
        return model

    # ------------------------------------------------------------------ storage

    def _state(self) -> State:
        state = super()._state()
        header = state.header | {"plan": self.plan_.to_json()}
        if self.__dict__.get("source_"):
            header["source"] = {str(name): str(value) for name, value in self.source_.items()}
        return State(header, state.arrays)

    def _set_report(self, state: State) -> None:
        super()._set_report(state)
        self.classes_ = LabelCoder.from_json(state.header.get("labels")).classes_
        self.plan_ = Plan.from_json(state.header.get("plan"))
        source = state.header.get("source")
        if source is not None:
            good = isinstance(source, dict) and len(source) <= 20
            if not good or not all(isinstance(w, str) and len(w) <= 1000 for item in source.items() for w in item):
                raise ModelFileError("the model file's words on the source of its data are damaged.")
            self.source_ = dict(source)


class TrainedChain(SolverOptions, ColumnChain):
    """A chain that a solver trains."""

    n_seen_: int = learnt()
    temperature_: float = learnt()
    _pass: Ongoing | None = learnt()  # where partial_fit is

    # ------------------------------------------------------ what differs between models

    @property
    def _plan(self) -> Plan:
        """The objective and the solver that the parameters stand for."""
        return plan_chain("likelihood", self.solver)

    _likelihood: ClassVar[Objective] = Contrast()  # what the word means for the model

    def _parts(self, model: ColumnModel, batch: Batch, target: Target) -> ChainParts | RunParts:
        """What a plan is carried out on."""
        return column_parts(model, batch, target, n_jobs=resolve_jobs(self.n_jobs))

    def _completed(self, model: ColumnModel, target: Target, before: Any) -> ColumnModel:
        """The model of fresh or grown columns, with all else that it has."""
        return model

    def _costed(self, target: Target, labels: LabelCoder) -> Target:
        """The target with the costs of errors, if they have any."""
        return target

    def _check_on_disk(self) -> None:
        """InputError unless the parameters are for data on disk too."""
        if self.label_functions is not None or self.validation_fraction is not None:
            raise InputError(
                "label_functions and validation_fraction are for data in memory. Give validation=(X, y) to stop by "
                "held-out sequences."
            )
        if self.solver not in ON_DISK:
            raise InputError(
                f"data on disk is trained by solver={', '.join(map(repr, ON_DISK))}, got {self.solver!r}."
            )

    # ------------------------------------------------------------------ fitting

    def _check_together(self) -> None:
        super()._check_together()
        check_solver_options(self.solver, self.solver_options)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, validation: Any = None) -> Self:
        """Learn the weights from sequences X and their labels y, or from a `crfield.EncodedDataset` on disk.

        ``sample_weight`` has one number for each sequence; 0 leaves it out. ``validation`` is a pair (X, y) of
        held-out sequences to stop by. Ctrl-C ends training with the best weights so far.
        """
        self.check()
        if isinstance(X, EncodedDataset):
            problem = self._problem_on_disk(X, y, sample_weight)
            held = None if validation is None else check_validation(validation)
        else:
            X, y, sample_weight = without_weightless(X, y, sample_weight)
            before = self._fitted if self.warm_start and self.__sklearn_is_fitted__() else None
            labels = grown_labels(None if before is None else before.labels, y)
            X, y, sample_weight, held = divide(self, X, y, sample_weight, validation)
            problem = self._problem(labels, X, y, sample_weight, before)
        held_out = None
        if held is not None:
            held_out = HeldOut(self, problem.model, *held, score=self.validation_score, patience=self.patience)
        result = train(self, problem, held_out)
        self._pass, self.n_seen_ = None, problem.n_sequences
        self.plan_ = problem.plan.because(result.how)
        self._learn(replace(problem.model, weights=result.weights), result)
        self._warn_unless_converged(result)
        return self

    def _problem(self, labels: LabelCoder, X: Any, y: Any, sample_weight: Any, before: Any = None) -> ChainProblem:
        """What is trained on data in memory, from the weights of a model before, if there is one."""
        if self.label_functions is None:
            model, batch, target, _ = self._read(labels, X, y, sample_weight, before)
            return in_memory(model, self._plan, self._parts(model, batch, target))
        functions, jobs = check_label_functions(self), resolve_jobs(self.n_jobs)

        def make_target(chains: Chains) -> Target:
            return self._costed(sequence_target(chains, labels, y, sample_weight), labels)

        return of_functions(
            functions, labels, X, make_target, self._plan, before, likelihood=self._likelihood, n_jobs=jobs
        )

    def _read(
        self, labels: LabelCoder, X: Any, y: Any, sample_weight: Any, before: Any
    ) -> tuple[ColumnModel, Batch, Target, dict[str, np.ndarray] | None]:
        """Model, columns, target, and the places of the columns that a model before had."""
        places = None
        if isinstance(before, ColumnModel):
            old = without_runs(before)
            old.encode([])  # refuses an encoder and weights of a file that do not belong together
            found = grow(old.encoder, X, min_count=self.min_count)
            refuse_large(found.batch, found.encoder)
            batch = found.batch
            target = self._costed(sequence_target(batch.topology, labels, y, sample_weight), labels)
            seen = self._layout(found.encoder, batch, target, like=old.layout)
            model, places = grown_columns(old, labels, found, seen)
        else:
            encoder, batch = self._learn_columns(X)
            target = self._costed(sequence_target(batch.topology, labels, y, sample_weight), labels)
            layout = self._layout(encoder, batch, target)
            model = ColumnModel(labels, encoder, layout, np.zeros(layout.n_weights))
        return self._completed(model, target, before), batch, target, places

    def _problem_on_disk(self, dataset: EncodedDataset, y: Any, sample_weight: Any) -> ChainProblem:
        """What is trained on data that were encoded before."""
        if y is not None or sample_weight is not None:
            raise InputError("an encoded data set has its labels and weights inside: leave y and sample_weight out.")
        self._check_on_disk()
        header, arrays = dataset.encoder_state
        code = {} if self.functions is None else {"transition_functions": self.transition_functions}
        encoder = encoder_from_state(header, arrays, functions=self.functions, **code)  # type: ignore[arg-type]
        return on_disk(
            dataset,
            encoder,
            self._plan,
            observe=self._layout,
            make_parts=self._parts,
            costed=lambda target: self._costed(target, dataset.coder),
            constraints=getattr(self, "constraints", None),
        )

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, *, n_sequences: float | None = None
    ) -> Self:
        """Incremental learning: one pass of stochastic steps over one more part; features and labels may be new.

        ``classes`` lists labels that parts to come may hold (it is not needed). Penalties are shared out over
        ``n_sequences``, by default all that were handed in so far: give the number of different ones where parts come
        more than once, and many passes approach what ``fit`` finds. ``objective_`` is the loss met on the way.
        """
        self.check()
        if self.label_functions is not None:
            raise InputError("partial_fit is for models with columns; functions of two labels are trained by fit.")
        if n_sequences is not None and not (is_number(n_sequences) and n_sequences > 0):
            raise InputError(f"n_sequences must be a number > 0 (all sequences there will be), got {n_sequences!r}.")
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        before = self._fitted if self.__sklearn_is_fitted__() else None
        labels = grown_labels(None if before is None else before.labels, y, classes)
        model, batch, target, places = self._read(labels, X, y, sample_weight, before)
        if before is None or places is None:
            state, fresh = begun(model)
        else:
            so_far = self.__dict__.get("_pass") or Ongoing(before.weights, None, self.__dict__.get("n_seen_", 0))
            state, fresh = grown(so_far, before, model, places)
        parts, plan = self._parts(model, batch, target), self._plan
        assert isinstance(parts, ChainParts)
        result = take_pass(
            parts,
            plan.objective,
            state,
            fresh,
            chain_penalty(self, model),
            n_sequences=n_sequences,
            random_state=self.random_state,
            history=list(self.history_) if before is not None else [],
        )
        self._pass, self.n_seen_, self.plan_ = state, int(state.n_seen), plan.because(result.how)
        return self._learn(replace(model, weights=result.weights), result)

    def calibrated(self, X: Any, y: Any) -> Self:
        """A copy whose probabilities are as good as they sound: its temperature is fitted to held-out sequences.

        Predicted paths are the same; ``temperature_`` tells what the weights were divided by.
        """
        model, twin = self._columns("calibrated"), copy.copy(self)

        def log_prob(temperature: float) -> np.ndarray:
            return twin._learn(cooled(model, temperature)).log_prob(X, y)

        twin.temperature_ = fitted_temperature(log_prob)
        return twin._learn(cooled(model, twin.temperature_))

    # ------------------------------------------------------------------ storage

    def save(self, path: Any) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. Nothing in it is ever executed."""
        kept = self.checkpoint
        if kept is not None and isinstance(path, str | os.PathLike) and same_file(kept, path):
            raise InputError(
                f"{os.fspath(path)} is the file of checkpoint=…, which the next fit would look for; the model was "
                "not saved. Name another file."
            )
        super().save(path)

    def _state(self) -> State:
        state = super()._state()
        state.header["report"]["n_seen_"] = int(self.__dict__.get("n_seen_", 0))
        return state

    def _set_report(self, state: State) -> None:
        super()._set_report(state)
        seen = state.part("report").header.get("n_seen_")
        self.n_seen_ = seen if type(seen) is int and seen >= 0 else 0
