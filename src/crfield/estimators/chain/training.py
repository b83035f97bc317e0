"""`TrainedChain`: a chain whose weights a solver finds, from data in memory, from disk, or part by part.

``fit`` goes one way whatever the data are: *check*, *read* (columns, target, layout), *problem* (what the plan's
solver is handed), *train*, *learn*. A model that was trained before can grow: features that are new get columns,
labels that are new get codes behind the others, new pairs of both get weights of zero; old weights go along to their
new places (`features.growth`, `scoring.layout_growth`). Nothing is taken away, and where nothing is new nothing
changes.

Beside a training may sit the progress line, the user's callback, held-out sequences (`early_stopping`) and a
checkpoint (`storage.checkpoints`); `run_training` puts them around any solver.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np

from crfield.core.checks import (
    is_number,
)
from crfield.core.costs import label_counts
from crfield.core.parameters import learnt
from crfield.core.target import Target
from crfield.core.typing import File, Labels, Sequences, Weights
from crfield.data.batch import Batch
from crfield.data.label_growth import grown_labels
from crfield.data.labels import LabelCoder, sequence_target
from crfield.data.large import refuse_large
from crfield.errors import InputError
from crfield.estimators.base.fitted import Fitted
from crfield.estimators.base.groups import Callback
from crfield.estimators.base.progress import Progress
from crfield.estimators.base.sequences import without_weightless
from crfield.estimators.chain.calibration import cooled, fitted_temperature
from crfield.estimators.chain.columns import ColumnChain
from crfield.estimators.chain.early_stopping import HeldOut, check_validation
from crfield.estimators.chain.model import ColumnModel, FunctionModel, tabulate_sequences
from crfield.estimators.chain.on_disk import refuse_solver, sharded
from crfield.estimators.chain.options import (
    SolverOptions,
    check_label_functions,
    divide,
    open_checkpoint,
    parameters_digest,
)
from crfield.features.detect import encoder_from_state
from crfield.features.growth import grow
from crfield.inference.chain import ChainEngine
from crfield.kernels.choice import MANY, tell_of_slow_fit
from crfield.objectives.contrast import Contrast
from crfield.optimize.history import CALLBACK, INTERRUPTED, Result, Step
from crfield.optimize.penalty import Penalty
from crfield.scoring.layout import Layout
from crfield.scoring.layout_growth import carried, joined
from crfield.scoring.tables import TableScorer
from crfield.storage.checkpoints import Checkpoint
from crfield.storage.digests import digest
from crfield.storage.encoded import EncodedDataset
from crfield.storage.files import same_file
from crfield.training.chain.higher_order import HigherOrderParts
from crfield.training.chain.partial_fit import PartialFit, begun, grown, take_pass
from crfield.training.chain.plan import (
    ChainParts,
    Plan,
    check_solver_options,
    fit_chain,
    plan_chain,
    prepare,
)
from crfield.training.chain.shards import SHARD_SOLVERS, ShardedChain, fit_sharded
from crfield.training.cluster.current import CURRENT
from crfield.training.full_batch import Objective

if TYPE_CHECKING:
    from crfield.training.cluster.session import Cluster

Places = dict[str, np.ndarray]  # of the columns that a model before had, by kind of column


@dataclass(frozen=True, eq=False)
class ChainProblem:
    """What is trained: a model with its first weights, a plan, and the data in the form that the plan asks for."""

    model: ColumnModel | FunctionModel
    plan: Plan
    handed: (
        Any  # a problem or `ChainParts`, by the plan; `ShardedChain` for data on disk, `ClusterChain` on a cluster
    )
    n_sequences: int
    n_steps: int
    digests: Mapping[str, str]  # of the data and the layout; none where no checkpoint asks for them

    @property
    def on_cluster(self) -> bool:
        """Whether workers of a cluster have the data."""
        return getattr(self.handed, "cluster", None) is not None

    @property
    def start(self) -> np.ndarray | None:
        """The weights to begin with, where they are not all zero."""
        return self.model.weights if self.model.weights.any() else None


class TrainedChain(SolverOptions, ColumnChain, group=True):
    """A chain that a solver trains."""

    reported = (*Fitted.reported, "n_seen_")
    n_seen_: int = learnt()
    temperature_: float = learnt()
    _pass: PartialFit | None = learnt()  # where partial_fit is

    # ------------------------------------------------------ what differs between models

    @property
    def _clusters(self) -> bool:
        return True

    @property
    def _plan(self) -> Plan:
        """The objective and the solver that the parameters stand for."""
        return plan_chain("likelihood", self.solver)

    _likelihood: ClassVar[Objective] = Contrast()  # what the word means for the model

    def _parts(self, model: ColumnModel, batch: Batch, target: Target) -> ChainParts | HigherOrderParts:
        """What a plan is carried out on."""
        raise NotImplementedError

    def _completed(
        self, model: ColumnModel, target: Target, before: ColumnModel | FunctionModel | None = None
    ) -> ColumnModel:
        """The model of fresh or grown columns, with all else that it has."""
        return model

    def _costed(self, target: Target, labels: LabelCoder, counts: np.ndarray | None = None) -> Target:
        """The target with the costs of errors, if they have any; ``counts`` of labels where it is only a part."""
        return target

    def _check_on_disk(self) -> None:
        """InputError unless the parameters are for data on disk too."""
        if self.label_functions is not None:
            raise InputError(
                "label_functions are for data in memory. Encode features f(x, t) instead (functions=…), which get a "
                "weight for each label."
            )
        if self.validation_fraction is not None:
            raise InputError(
                "validation_fraction is for data in memory. Give validation=(X, y) to stop by held-out sequences."
            )
        refuse_solver(self._plan)

    # ------------------------------------------------------------------ fitting

    def _check_together(self) -> None:
        super()._check_together()
        if self.solver_options is not None:
            check_solver_options(self.solver, self.solver_options)

    def fit(
        self,
        X: Sequences | EncodedDataset,
        y: Labels | None = None,
        sample_weight: Weights = None,
        *,
        validation: tuple[Sequences, Labels] | None = None,
    ) -> Self:
        """Learn the weights from sequences X and their labels y, or from a `crfield.EncodedDataset` on disk.

        ``sample_weight`` has one number for each sequence; 0 leaves it out. ``validation`` is a pair (X, y) of
        held-out sequences to stop by. Ctrl-C ends training with the best weights so far.
        """
        self.check()
        held = held_out = None
        workers = CURRENT.get()
        if isinstance(X, EncodedDataset):
            problem = self._problem_on_disk(X, y, sample_weight, workers)
            held = None if validation is None else check_validation(validation)
        else:
            y = cast(Labels, y)  # None is refused where labels are read
            if sample_weight is not None:
                X, y, sample_weight = without_weightless(X, y, sample_weight)
            before = self._fitted if self.warm_start and self.__sklearn_is_fitted__() else None
            labels = LabelCoder().fit(y) if before is None else grown_labels(before.labels, y)
            if validation is not None or self.validation_fraction is not None:
                X, y, sample_weight, held = divide(self, X, y, sample_weight, validation)
            problem = self.training_problem(labels, X, y, sample_weight, before, cluster=workers)
        if problem.n_steps * problem.model.labels.n_labels > MANY:
            tell_of_slow_fit(problem.n_steps, problem.model.labels.n_labels)
        if held is not None:
            held_out = HeldOut(self, problem.model, *held, score=self.validation_score, patience=self.patience)
        try:
            result = self.solve(problem, held_out)
        finally:
            if workers is not None:
                problem.handed.close()
        self._pass, self.n_seen_ = None, problem.n_sequences
        self.plan_ = problem.plan.because(result.how)
        self._learn(replace(problem.model, weights=result.weights), result)
        self._warn_unless_converged(result)
        return self

    def solve(self, problem: ChainProblem, held_out: HeldOut | None = None) -> Result:
        """Carry out the plan of a problem by the parameters of the estimator."""
        plan, handed, start = problem.plan, problem.handed, problem.start
        penalty = chain_penalty(self, problem.model)
        common: dict[str, Any] = {
            "start": start,
            "tol": self.tol,
            "max_iter": self.max_iter,
            "n_jobs": self._jobs,
            "rng": np.random.default_rng(self.random_state),
        }

        def run(**watched: Any) -> Result:
            if problem.on_cluster:
                from crfield.training.cluster.chain import fit_on_cluster

                stochastic = plan.solver != "lbfgs" and handed.stochastic and start is None
                return fit_on_cluster(handed, penalty, stochastic=stochastic, **{**common, **watched})
            if isinstance(handed, ShardedChain) and plan.solver in SHARD_SOLVERS:
                stochastic = plan.solver != "lbfgs" and handed.stochastic
                return fit_sharded(handed, penalty, stochastic=stochastic, **{**common, **watched})
            return fit_chain(plan, handed, penalty, options=self.solver_options, **{**common, **watched})

        checkpoint = None
        if self.checkpoint is not None:
            told = {**problem.digests, "the parameters": parameters_digest(self)}
            checkpoint = open_checkpoint(self, told, start=start, held_out=held_out)
        name = type(self).__name__
        return run_training(run, Watch(self.callback, held_out, checkpoint, self.verbose, self.max_iter, name))

    def training_problem(
        self,
        labels: LabelCoder,
        X: Sequences,
        y: Labels,
        sample_weight: Weights = None,
        before: ColumnModel | FunctionModel | None = None,
        *,
        cluster: Cluster | None = None,
    ) -> ChainProblem:
        """What is trained on data in memory, from the weights of a model before, if there is one.

        With a ``cluster`` the sequences are sent to its workers, once.
        """
        model: ColumnModel | FunctionModel
        parts: ChainParts | HigherOrderParts
        if self.label_functions is None:
            model, batch, target, _ = self.read_training(labels, X, y, sample_weight, before)
            parts = self._parts(model, batch, target)
        else:
            functions = check_label_functions(self)
            tables = tabulate_sequences(functions, labels.labels, X)
            target = self._costed(sequence_target(tables.topology, labels, y, sample_weight), labels)
            model = FunctionModel(labels, functions, np.zeros(len(functions)))
            if isinstance(before, FunctionModel) and len(before.weights) == len(functions):
                model = replace(model, weights=before.weights)
            scorer, engine = TableScorer(len(functions), labels.n_labels), ChainEngine(self._jobs)
            parts = ChainParts(scorer, tables, target, engine, likelihood=self._likelihood)
        plan = self._plan
        digests = self._digests([parts.batch, target], parts.layout)
        if cluster is None:
            handed = prepare(plan, parts)
        else:
            from crfield.estimators.chain.on_cluster import sent_to_cluster

            handed = sent_to_cluster(cluster, plan, parts)
        topology = target.topology
        return ChainProblem(model, plan, handed, topology.n_sequences, topology.n_nodes, digests)

    def read_training(
        self,
        labels: LabelCoder,
        X: Sequences,
        y: Labels,
        sample_weight: Weights = None,
        before: ColumnModel | FunctionModel | None = None,
    ) -> tuple[ColumnModel, Batch, Target, Places | None]:
        """A model with its first weights, columns, target, and the places of the columns that a model before had."""
        places = None
        if isinstance(before, ColumnModel):
            old = before.plain()
            old.check_columns()
            found = grow(old.encoder, X, min_count=self.min_count)
            encoder, batch = found.encoder, found.batch
            refuse_large(batch, encoder)
            target = self._costed(sequence_target(batch.topology, labels, y, sample_weight), labels)
            places = {name: getattr(found, name) for name in ("node", "dense", "edge", "edge_dense")}
            layout = joined(old.layout, self._layout(encoder, batch, target, like=old.layout), places)
            if _same_size(layout, old.layout):  # nothing is new: the two are equal
                model = replace(old, labels=labels, encoder=encoder)
            else:
                model = ColumnModel(labels, encoder, layout, carried(old.weights, old.layout, layout, places))
        else:
            encoder, batch = self._learn_columns(X)
            target = self._costed(sequence_target(batch.topology, labels, y, sample_weight), labels)
            layout = self._layout(encoder, batch, target)
            model = ColumnModel(labels, encoder, layout, np.zeros(layout.n_weights))
        return self._completed(model, target, before), batch, target, places

    def _problem_on_disk(
        self, dataset: EncodedDataset, y: Labels | None, sample_weight: Weights, workers: Cluster | None = None
    ) -> ChainProblem:
        """What is trained on data that were encoded before."""
        if y is not None or sample_weight is not None:
            raise InputError("an encoded data set has its labels and weights inside: leave y and sample_weight out.")
        self._check_on_disk()
        header, arrays = dataset.encoder_state
        code: dict[str, Any] = {} if self.functions is None else {"transition_functions": self.transition_functions}
        encoder, plan = encoder_from_state(header, arrays, functions=self.functions, **code), self._plan

        counts = np.zeros(dataset.coder.n_labels)

        def observe(encoder: Any, batch: Batch, target: Target) -> Layout:
            counts[:] += label_counts(target)
            return self._layout(encoder, batch, target)

        def make(model: ColumnModel, batch: Batch, target: Target) -> ChainParts | HigherOrderParts:
            return self._parts(model, batch, self._costed(target, model.labels, counts))

        problem: Any
        if workers is not None:
            from crfield.estimators.chain.on_cluster import sharded_on_cluster

            model, problem = sharded_on_cluster(workers, dataset, encoder, plan, self, self._pairs(encoder))
        else:
            model, problem = sharded(
                dataset, encoder, plan, observe=observe, complete=self._completed, make_parts=make
            )
        digests = self._digests(dataset.digests, model.layout)
        return ChainProblem(model, plan, problem, len(dataset), dataset.n_steps, digests)

    def _digests(self, data: Sequence[object], layout: Layout | None) -> dict[str, str]:
        """What a checkpoint is compared by; nothing where none is kept."""
        return (
            {} if self.checkpoint is None else {"the data": digest(data), "the features and labels": digest(layout)}
        )

    def partial_fit(
        self,
        X: Sequences,
        y: Labels,
        classes: Iterable[Hashable] | None = None,
        sample_weight: Weights = None,
        *,
        n_sequences: float | None = None,
    ) -> Self:
        """Incremental learning: one pass of steps over one more part; features and labels may be new.

        ``classes`` lists labels that parts to come may hold (it is not needed). Penalties are shared out over
        ``n_sequences``, by default all that were handed in so far: give the number of different ones where parts come
        more than once, and many passes approach what ``fit`` finds; text and few numeric columns then are within
        about 1 % after ten. ``objective_`` is the loss met on the way.
        """
        self.check()
        if self.label_functions is not None:
            raise InputError("partial_fit is for models with columns; functions of two labels are trained by fit.")
        if n_sequences is not None and not (is_number(n_sequences) and n_sequences > 0):
            raise InputError(f"n_sequences must be a number > 0 (all sequences there will be), got {n_sequences!r}.")
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        before = self._fitted if self.__sklearn_is_fitted__() else None
        labels = grown_labels(None if before is None else before.labels, y, classes)
        model, batch, target, places = self.read_training(labels, X, y, sample_weight, before)
        fresh = None
        if before is None or places is None:
            state = begun(model.weights)
        else:
            so_far = self.__dict__.get("_pass") or PartialFit(before.weights, None, self.__dict__.get("n_seen_", 0))
            state, fresh = grown(so_far, before.layout, model.layout, places)
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

    def calibrated(self, X: Sequences, y: Labels) -> Self:
        """A copy whose probabilities are as good as they sound: its temperature is fitted to held-out sequences.

        Predicted paths are the same; ``temperature_`` tells what the weights were divided by.
        """
        model = self.column_model("calibrated")

        def log_prob(temperature: float) -> np.ndarray:
            return self.holding(cooled(model, temperature)).log_prob(X, y)

        temperature = fitted_temperature(log_prob)
        twin = self.holding(cooled(model, temperature))
        twin.temperature_ = temperature
        return twin

    # ------------------------------------------------------------------ storage

    def save(self, path: File) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. Nothing in it is ever executed."""
        kept = self.checkpoint
        if kept is not None and isinstance(path, str | os.PathLike) and same_file(kept, path):
            raise InputError(
                f"{os.fspath(path)} is the file of checkpoint=…, which the next fit would look for; the model was "
                "not saved. Name another file."
            )
        super().save(path)


def _same_size(one: Layout, other: Layout) -> bool:
    sizes = ("n_labels", "n_columns", "n_dense", "n_edge_columns", "n_edge_dense", "n_weights")
    return all(getattr(one, name) == getattr(other, name) for name in sizes)


def chain_penalty(options: SolverOptions, model: ColumnModel | FunctionModel) -> Penalty:
    """The penalty that ``l1``, ``l2`` and ``penalize_intercepts`` mean for a model."""
    penalised = None
    if not options.penalize_intercepts and isinstance(model, ColumnModel):
        penalised = (~model.layout.intercepts).astype(np.uint8)
    return Penalty(l1=options.l1, l2=options.l2, penalised=penalised)


# ------------------------------------------------------------------------------------------ one run of a solver


@dataclass(frozen=True)
class Watch:
    """What sits beside a training: the user's callback, held-out data, a checkpoint, and a progress line."""

    callback: Callback | None = None
    held_out: HeldOut | None = None
    checkpoint: Checkpoint | None = None
    verbose: int = 0
    total: int | None = None
    description: str = "training"


def run_training(run: Callable[..., Result], watch: Watch) -> Result:
    """``run(callback=…)`` with all that sits beside it.

    With a checkpoint, ``run`` also gets ``run_state``, and ``max_iter`` where nothing is left to do. The checkpoint
    is done unless Ctrl-C or the user's callback ended the run.
    """
    checkpoint, held_out = watch.checkpoint, watch.held_out
    kept: dict[str, Any] = {}
    if checkpoint is not None:
        kept["run_state"] = checkpoint
        if held_out is not None:
            found = checkpoint.found_beside("held_out")
            if found is not None:
                held_out.restore(found)
            checkpoint.keep_beside("held_out", held_out.state)
    if held_out is not None and held_out.waited_enough:  # the run that is gone on from had come to its end
        kept["max_iter"] = max(held_out.scores)
    if watch.callback is None and held_out is None and not watch.verbose:
        result = run(callback=None, **kept)
    else:
        with Progress(watch.verbose, total=watch.total, description=watch.description) as progress:

            def after(step: Step, weights: np.ndarray) -> bool | None:
                enough = False
                if held_out is not None:
                    step, enough = held_out.after(step, weights)
                progress.update(step)
                wish = watch.callback(step, weights) if watch.callback is not None else None
                return enough or wish

            result = run(callback=after, **kept)
    if checkpoint is not None:
        wished = result.reason == CALLBACK and not (held_out is not None and held_out.waited_enough)
        checkpoint.close(done=result.reason != INTERRUPTED and not wished)
    return result if held_out is None else held_out.kept(result)
