"""Which objective and solver train a chain, and whether the two go together.

    likelihood          −log p(y | x)
    pseudo_likelihood   each step given the labels beside it
    softmax_margin      likelihood in which wrong labellings are raised by their cost
    hinge               the best labelling, errors counted in its favour, against the true one
    perceptron          the best labelling against the true one
    label_accuracy      expected number of wrong labels
    label_likelihood    −log of each label's marginal probability

Every solver is a row of `TRAINERS`, with the objectives that it can train; the first of them is what
``objective="auto"`` means for it. There are two kinds. One asks for a value and a gradient at some weights and is
handed a problem; for the likelihood that problem is the packed one of `training.likelihood`, and the columns it came
from are let go. The other looks into the data (one sequence at a time, second derivatives, counts) and is handed
`ChainParts`. A row names its function, which is imported when it is first used:

    problem:  function(problem, penalty, *, start, tol, max_iter, n_jobs, rng, callback, options) -> Result
    data:     function(parts, penalty, job) -> Result        job: `Job`, the same and the objective

``start`` is a vector of weights, or None for zeros; ``options`` holds only names that the row lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np

from crfield.core.checks import one_of
from crfield.core.target import Target
from crfield.errors import InputError
from crfield.inference.chain import ChainEngine
from crfield.objectives.contrast import Contrast
from crfield.optimize.history import CALLBACK, INTERRUPTED, Result, Step
from crfield.optimize.penalty import Penalised, Penalty, Point
from crfield.optimize.resume import RunState
from crfield.scoring.layout import Layout
from crfield.scoring.linear import LinearScorer
from crfield.training.column_basis import measured
from crfield.training.full_batch import FullBatch, Objective, Scorer
from crfield.training.likelihood import FusedChain, fit_likelihood

LIKELIHOOD = ("likelihood",)
CONVEX = ("likelihood", "pseudo_likelihood", "softmax_margin")
SMOOTH = (*CONVEX, "label_accuracy", "label_likelihood")
BY_SEQUENCE = ("likelihood", "softmax_margin", "hinge")
RATED, AVERAGED = ("epochs", "rate", "batch_size"), ("epochs", "averaged")
OBJECTIVES = ("auto", *CONVEX, "hinge", "perceptron", "label_accuracy", "label_likelihood")
COSTED = (
    "softmax_margin",
    "hinge",
    "label_likelihood",
    "label_accuracy",
)  # what costs and class weights have a meaning for
START_TOL = 1e-3  # of the likelihood that an objective with many minima starts from


Callback = Callable[[Step, np.ndarray], bool | None]


@dataclass(frozen=True)
class Trainer:
    """A solver: what it can train, where its function is, whether it knows the l1 penalty, names of its options."""

    objectives: tuple[str, ...]
    function: str  # "module:function"
    data: bool = False  # whether it is handed `ChainParts` instead of a problem
    l1: bool = False
    options: tuple[str, ...] = ()
    resumes: bool = False  # whether it takes a ``run_state`` and resumes what that found (`optimize.resume`)

    def load(self) -> Callable[..., Result]:
        """The function."""
        module, name = self.function.split(":")
        loaded: Callable[..., Result] = getattr(import_module(module), name)
        return loaded


TRAINERS: dict[str, Trainer] = {
    "lbfgs": Trainer(SMOOTH, "crfield.training.chain.batch:fit_lbfgs", l1=True, resumes=True),
    "warm": Trainer(LIKELIHOOD, "crfield.training.chain.batch:fit_warm", l1=True, resumes=True),
    "primal_dual": Trainer(LIKELIHOOD, "crfield.training.chain.batch:fit_primal_dual", l1=True, resumes=True),
    "cg": Trainer(SMOOTH, "crfield.training.chain.batch:fit_cg", options=("update",)),
    "newton_cg": Trainer(("likelihood", "softmax_margin"), "crfield.training.chain.batch:fit_newton_cg", data=True),
    "projected_cg": Trainer(SMOOTH, "crfield.training.chain.batch:fit_projected_cg", l1=True),
    "gis": Trainer(LIKELIHOOD, "crfield.training.chain.iterative_scaling:fit_gis", data=True),
    "sgd": Trainer(BY_SEQUENCE, "crfield.training.chain.stochastic:fit_sgd", data=True, options=RATED),
    "sgd_l1": Trainer(
        BY_SEQUENCE,
        "crfield.training.chain.stochastic:fit_sgd_l1",
        data=True,
        l1=True,
        options=(*RATED, "decay"),
    ),
    "adagrad": Trainer(
        BY_SEQUENCE, "crfield.training.chain.stochastic:fit_adagrad", data=True, l1=True, options=RATED
    ),
    "perceptron": Trainer(
        ("perceptron",), "crfield.training.chain.mistakes:fit_perceptron", data=True, options=AVERAGED
    ),
    "passive_aggressive": Trainer(
        ("hinge",),
        "crfield.training.chain.mistakes:fit_passive_aggressive",
        data=True,
        options=(*AVERAGED, "variant", "C"),
    ),
    "arow": Trainer(("hinge",), "crfield.training.chain.mistakes:fit_arow", data=True, options=(*AVERAGED, "r")),
    "frank_wolfe": Trainer(("hinge",), "crfield.training.chain.dual_hinge:fit_frank_wolfe", data=True),
}
SOLVERS = ("auto", *TRAINERS)


@dataclass(frozen=True, eq=False)
class Job:
    """What a trainer that looks into the data is told besides the data: for what, from where, how long, who watches.

    >>> Job("hinge", max_iter=3).max_iter
    3
    """

    objective: str
    start: np.ndarray | None = None  # weights, or None for zeros
    tol: float = 1e-4
    max_iter: int = 500
    n_jobs: int = 1
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    callback: Callback | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # only names that the trainer lists


@dataclass(frozen=True)
class Plan:
    """An objective, the solver that trains it, and why.

    The solver of a likelihood is "auto" until it has looked at the data; ``reason`` then tells what it took.
    """

    objective: str
    solver: str
    reason: str = ""

    def because(self, reason: str) -> Plan:
        """The plan with a reason; what was asked for by name needs none."""
        return replace(self, reason=reason or f"{self.solver}, as asked for")

    def __str__(self) -> str:
        return f"Objective: {self.objective}. Solver: {self.reason or self.solver}."

    def to_json(self) -> dict[str, str]:
        """For a model file."""
        return {"objective": self.objective, "solver": self.solver, "reason": self.reason}

    @classmethod
    def from_json(cls, found: Any) -> Plan:
        """The plan of a model file; files of version 0.1.0 have none."""
        words = found if isinstance(found, dict) else {}
        told = [
            words.get(name, default)
            for name, default in (("objective", "unknown"), ("solver", "unknown"), ("reason", ""))
        ]
        if not all(isinstance(word, str) and len(word) <= 1000 for word in told):
            raise InputError("the plan of training must be three short texts.")
        return cls(*told)


@dataclass(frozen=True, eq=False)
class ChainParts:
    """A labelled batch and what scores it, for trainers that look into the data.

    ``layout`` is None where scores are no plain columns (functions of two labels, locally normalised models).
    ``likelihood`` is what the word means for the model at hand.
    """

    scorer: Scorer
    batch: Any
    target: Target
    engine: ChainEngine
    layout: Layout | None = None
    likelihood: Objective = field(default_factory=Contrast)
    column_layout: Layout | None = None  # of weights of columns, where they make scores of another kind

    def problem(self, objective: str, *, whole: bool = True) -> FusedChain | FullBatch:
        """The objective as a function of the weights.

        Unless it is only a part of the ``whole`` data, it is told what its numeric columns are like.
        """
        made: FusedChain | FullBatch
        if objective == "likelihood" and self.layout is not None:
            made = FusedChain(self.layout, self.batch, self.target, n_jobs=self.engine.n_jobs)
        else:
            chosen = self.likelihood if objective == "likelihood" else chain_objective(objective)
            made = FullBatch(self.scorer, self.batch, self.target, objective=chosen, engine=self.engine)
        layout = self.column_layout or self.layout
        if whole and layout is not None and self.batch.numeric:
            measured(made, layout, self.batch, self.target)
        return made

    @classmethod
    def columns(cls, layout: Layout, batch: Any, target: Target, *, n_jobs: int = 1) -> ChainParts:
        """The parts of a model of columns."""
        return cls(LinearScorer(layout), batch, target, ChainEngine(n_jobs), layout)


def plan_chain(objective: Any = "auto", solver: Any = "auto", *, costs: bool = False) -> Plan:
    """The plan that two names stand for; InputError, with what there is, where they do not go together.

    ``costs`` tells that errors have costs or labels have weights, which the likelihood has no use for.

    >>> print(plan_chain(), plan_chain(costs=True))
    Objective: likelihood. Solver: auto. Objective: softmax_margin. Solver: lbfgs.
    >>> plan_chain("label_accuracy", "warm")
    Traceback (most recent call last):
    crfield.errors.InputError: solver='warm' trains 'likelihood', not 'label_accuracy'. Solvers that train it: ...
    """
    for name, value, known in (("objective", objective, OBJECTIVES), ("solver", solver, ("auto", *TRAINERS))):
        if not isinstance(value, str) or value not in known:
            one_of(*known)(name, value)
    if costs and objective not in ("auto", *COSTED):
        raise InputError(
            f"class_weight and costs have no meaning for objective={objective!r}. Use 'auto', 'softmax_margin' or "
            "'hinge', which scale errors by their cost, 'label_likelihood', which weighs steps, or "
            "'label_accuracy', the expected cost; sample_weight weighs whole sequences in any objective."
        )
    if objective == "auto":
        if solver == "auto":
            objective = "softmax_margin" if costs else "likelihood"
        else:
            can = TRAINERS[solver].objectives
            objective = next((name for name in COSTED if name in can), "") if costs else can[0]
            if not objective:
                raise InputError(
                    f"solver={solver!r} trains {_listed(can)}, for which class_weight and costs have no meaning. "
                    f"Solvers of objectives that use them: {_trainers_of(*COSTED)}."
                )
    if solver == "auto":
        solver = "auto" if objective == "likelihood" else _first_trainer(objective)
    elif objective not in TRAINERS[solver].objectives:
        raise InputError(
            f"solver={solver!r} trains {_listed(TRAINERS[solver].objectives)}, not {objective!r}. "
            f"Solvers that train it: {_trainers_of(objective)}."
        )
    return Plan(objective, solver)


def prepare(plan: Plan, parts: Any) -> Any:
    """What the plan's solver is handed: `ChainParts` (or those of higher order) themselves, or their problem."""
    if plan.solver != "auto" and TRAINERS[plan.solver].data:
        return parts
    if plan.objective.startswith("label_"):  # starts from the likelihood, so the parts are needed twice
        return parts
    return parts.problem(plan.objective)


def fit_chain(
    plan: Plan,
    problem: FusedChain | FullBatch | ChainParts,
    penalty: Penalty,
    *,
    start: np.ndarray | None = None,
    tol: float = 1e-4,
    max_iter: int = 500,
    n_jobs: int = 1,
    rng: np.random.Generator,
    callback: Callback | None = None,
    options: Mapping[str, Any] | None = None,
    run_state: RunState | None = None,
) -> Result:
    """Carry out the plan on what `prepare` made, or on `ChainParts`.

    The expected label accuracy has many minima: without a start it begins at a rough maximum of the likelihood.
    ``run_state`` keeps the state of the run; only some solvers can resume from it.
    """
    common: dict[str, Any] = {"tol": tol, "max_iter": max_iter, "n_jobs": n_jobs, "rng": rng, "callback": callback}
    if plan.solver == "auto":
        check_solver_options(plan.solver, options)
        if isinstance(problem, ChainParts):
            problem = problem.problem(plan.objective)
        return fit_likelihood(problem, penalty, start=start, solver="auto", run_state=run_state, **common)
    trainer = TRAINERS[plan.solver]
    if run_state is not None and not trainer.resumes:
        raise InputError(
            f"solver={plan.solver!r} cannot be resumed from a checkpoint. Solvers that can: "
            f"{_listed(tuple(name for name, row in TRAINERS.items() if row.resumes))}."
        )
    common["options"] = check_solver_options(plan.solver, options)
    if penalty.l1 and not trainer.l1:
        raise InputError(
            f"solver={plan.solver!r} has no l1 penalty, got l1={penalty.l1:g}. Solvers that have one: "
            f"{_listed(tuple(name for name, row in TRAINERS.items() if row.l1))}."
        )
    begun = run_state is not None and run_state.found("lbfgs") is not None
    if plan.objective.startswith("label_") and start is None and isinstance(problem, ChainParts) and not begun:
        rough = {**common, "tol": max(tol, START_TOL), "options": {}}
        likely = problem.problem("likelihood")
        first = TRAINERS["lbfgs"].load()(likely, penalty, start=None, **rough)
        if first.reason in (INTERRUPTED, CALLBACK):
            here = Point(first.weights, np.empty_like(first.weights))
            Penalised(problem.problem(plan.objective), penalty, n_jobs=n_jobs).evaluate(here)
            return replace(first, value=here.value, n_evaluations=first.n_evaluations + 1)
        start = first.weights
    if run_state is not None:
        common["run_state"] = run_state
    if trainer.data:
        if not isinstance(problem, ChainParts):
            raise InputError(f"solver={plan.solver!r} needs the data itself, got a {type(problem).__name__}.")
        return trainer.load()(problem, penalty, Job(plan.objective, start, **common))
    if isinstance(problem, ChainParts):
        problem = problem.problem(plan.objective)
    return trainer.load()(problem, penalty, start=start, **common)


def check_solver_options(solver: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options of a solver as a dict; InputError where it has no such option.

    >>> check_solver_options("lbfgs", None)
    {}
    >>> check_solver_options("lbfgs", {"rate": 1.0})
    Traceback (most recent call last):
    crfield.errors.InputError: solver='lbfgs' has no option 'rate'; it has none.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise InputError(f"solver_options must be a dict of names and values or None, got {options!r}.")
    known = TRAINERS[solver].options if solver in TRAINERS else ()
    for name in options:
        if name not in known:
            raise InputError(
                f"solver={solver!r} has no option {name!r}; it has {_listed(known) if known else 'none'}."
            )
    return dict(options)


def chain_objective(name: str) -> Objective:
    """The objective of that name.

    >>> chain_objective("likelihood")
    Contrast(semiring=<Semiring.LOG: 'log'>)
    """
    if name == "likelihood":
        return Contrast()
    if name == "pseudo_likelihood":
        from crfield.objectives.local import PseudoLikelihood

        return PseudoLikelihood()
    if name in ("softmax_margin", "hinge"):
        from crfield.objectives.margin import Margin, SoftMargin

        return Margin() if name == "hinge" else SoftMargin()
    if name == "perceptron":
        from crfield.objectives.margin import Perceptron

        return Perceptron()
    if name in ("label_accuracy", "label_likelihood"):
        from crfield.objectives.label_accuracy import LabelAccuracy

        return LabelAccuracy(log=name == "label_likelihood")
    raise InputError(f"objective must be one of {_listed(OBJECTIVES[1:])}, got {name!r}.")


def _first_trainer(objective: str) -> str:
    if objective == "hinge" and "frank_wolfe" in TRAINERS:  # the one that says how far it is from the optimum
        return "frank_wolfe"
    for name, trainer in TRAINERS.items():
        if objective in trainer.objectives:
            return name
    raise InputError(f"no solver trains {objective!r} yet.")


def _trainers_of(*objectives: str) -> str:
    return _listed(tuple(n for n, row in TRAINERS.items() if any(name in row.objectives for name in objectives)))


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names))
