"""What to train and with which inference, decided before any work and said in a sentence.

Exact likelihood is the best estimator there is where it can be had: on chains and forests always, on other graphs
when a junction tree is small. Everything else is a bargain, and "auto" takes the one with the fewest surprises,
pseudo-likelihood: its value and gradient are exact, it needs no inference and it is consistent (Besag 1975). It leans
on neighbours' true labels, which are not there at prediction time, and so tends to make couplings too strong.

    likelihood          log Z by the engine: exact, or Bethe ("loopy"), or its upper bound ("tree_reweighted")
    pseudo_likelihood   each node given its neighbours' labels
    piecewise           each node and each edge on its own
    contrastive         likelihood whose expectations are sampled by persistent Gibbs chains
    perceptron, hinge   the best labelling against the true one, without and with a margin
    softmax_margin      likelihood in which wrong labellings are raised by their cost
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crfield.core.graphs import Graphs
from crfield.core.topology import Chains
from crfield.errors import InputError
from crfield.inference.catalogue import ENGINES, choose_engine, engine_class, engine_named

OBJECTIVES = (
    "auto",
    "likelihood",
    "pseudo_likelihood",
    "piecewise",
    "contrastive",
    "perceptron",
    "hinge",
    "softmax_margin",
)
WITHOUT_INFERENCE = ("pseudo_likelihood", "piecewise", "contrastive")
EXACT = ("chain", "forest", "junction_tree", "brute")
TRAINING_BUDGET = 2**26  # bytes of clique tables that training, which infers hundreds of times, may use


@dataclass(frozen=True)
class Plan:
    """An objective, the engine it uses (None where it needs none), and why these."""

    objective: str
    engine: Any
    exact: bool
    reason: str


def plan_training(
    topology: Chains | Graphs, n_labels: int, *, objective: Any = "auto", engine: Any = "auto", n_jobs: int = 1
) -> Plan:
    """The plan for graphs like these.

    >>> from crfield.core.topology import Chains
    >>> plan_training(Chains.from_lengths([4, 2]), 3).reason
    'likelihood: chains have exact inference'
    """
    if objective not in OBJECTIVES:
        raise InputError(f"objective must be one of {', '.join(map(repr, OBJECTIVES))}, got {objective!r}.")
    if objective in WITHOUT_INFERENCE:
        sampled = objective == "contrastive"
        reason = "expectations are sampled as training goes on" if sampled else "needs no inference"
        return Plan(objective, None, exact=not sampled, reason=f"{objective}: {reason}")
    if isinstance(engine, str) and engine == "auto":
        choice = choose_engine(topology, n_labels, budget=TRAINING_BUDGET)
        exact = choice.name in EXACT
        if objective == "auto" and not exact:
            return Plan("pseudo_likelihood", None, exact=True, reason=f"pseudo_likelihood, since {choice.reason}")
        chosen = "likelihood" if objective == "auto" else objective
        return Plan(chosen, with_jobs(choice.engine, n_jobs), exact, f"{chosen}: {choice.reason}")
    made, name = resolve_engine(engine, n_jobs=n_jobs)
    chosen = "likelihood" if objective == "auto" else objective
    return Plan(chosen, made, name in EXACT, f"{chosen} by the engine asked for, {name}")


def resolve_engine(engine: Any, *, n_jobs: int = 1) -> tuple[Any, str]:
    """An engine given by name or as an object, and what to call it.

    >>> resolve_engine("brute")
    (BruteEngine(), 'brute')
    """
    if isinstance(engine, str):
        return with_jobs(engine_named(engine), n_jobs), engine
    if not callable(getattr(engine, "infer", None)):
        raise InputError(
            f"engine must be 'auto', the name of one ({', '.join(ENGINES)}) or an object with infer(potentials, "
            f"semiring), got {engine!r}."
        )
    for name in ENGINES:
        try:
            known = engine_class(name)
        except ImportError:
            continue
        if type(engine) is known:
            return engine, name
    return engine, type(engine).__name__


def with_jobs(engine: Any, n_jobs: int) -> Any:
    """The engine with this many threads, if threads are an option of it."""
    from dataclasses import fields, is_dataclass, replace

    if n_jobs != 1 and is_dataclass(engine) and any(field.name == "n_jobs" for field in fields(engine)):
        return replace(engine, n_jobs=n_jobs)  # type: ignore[type-var]
    return engine
