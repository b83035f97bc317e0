"""What to train and with which inference, decided before any work and said in a sentence.

Exact likelihood is the best estimator there is where it can be had: on chains and forests always, on other graphs
when a junction tree is small. Elsewhere "auto" takes the likelihood bounded by trees, with a strength of couplings
that is chosen on held-out graphs (`training.graph.strength`); on graphs too large for that it takes pseudo-likelihood
with the same guard. Everything else is for those who ask for it.

    likelihood          log Z by the engine: exact, or Bethe ("loopy"), or its upper bound ("tree_reweighted")
    pseudo_likelihood   each node given its neighbours' labels
    piecewise           each node and each edge on its own
    contrastive         likelihood whose expectations are sampled by persistent Gibbs chains
    perceptron, hinge   the best labelling against the true one, without and with a margin
    softmax_margin      likelihood in which wrong labellings are raised by their cost
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from crfield.core.checks import is_number, one_of
from crfield.core.graphs import Graphs
from crfield.core.topology import Chains
from crfield.errors import InputError
from crfield.inference.graphs.catalogue import ENGINES, choose_engine, engine_class, engine_named
from crfield.storage.state import State, refuse

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
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the couplings, between none and those of the whole fit
SECONDS = 300.0  # estimated, of one fit of the likelihood bounded by trees; beyond it: pseudo-likelihood
TRAINING_BUDGET = 2**26  # bytes of clique tables that training, which infers hundreds of times, may use


@dataclass(frozen=True)
class HeldOut:
    """What each of `STRENGTHS` did on graphs that were not trained on, and the one that was taken."""

    n_graphs: int
    n_nodes: int  # of known label
    strength: float
    accuracy: tuple[float, ...]  # share of nodes right, of each strength
    log_probability: tuple[float, ...]  # mean over nodes, of each strength
    misfit: bool = False  # whether whole couplings were less accurate than none by more than two standard errors

    @classmethod
    def from_state(cls, state: State, strength: float) -> Self:
        """What a model file says of held-out graphs; ModelFileError where that cannot be."""
        lists = [state.listed(name) for name in ("accuracy", "log_probability")]
        if not all(len(some) == len(STRENGTHS) and all(map(is_number, some)) for some in lists):
            refuse("the report on held-out graphs in the model file is impossible")
        accuracy, logs = (tuple(map(float, some)) for some in lists)
        counts = [state.integer(name, most=2**63 - 1) for name in ("n_graphs", "n_nodes")]
        return cls(counts[0], counts[1], float(strength), accuracy, logs, state.flag("misfit"))


@dataclass(frozen=True)
class Plan:
    """An objective, the engine it uses (None where it needs none), and why these.

    A ``guarded`` plan chooses the ``strength`` of couplings on ``held_out`` graphs; they are None before training,
    and ``held_out`` also where there was nothing to hold out. ``seconds`` is the estimate of one fit. ``remark`` is
    what a check after training found.
    """

    objective: str
    engine: Any
    exact: bool
    reason: str
    guarded: bool = False
    seconds: float = 0.0
    strength: float | None = None
    held_out: HeldOut | None = None
    remark: str = ""

    def state(self) -> State:
        """What a model file holds of it; the engine is made again from the rest.

        >>> Plan("piecewise", None, exact=True, reason="piecewise: needs no inference").state().header
        {'objective': 'piecewise', 'exact': True, 'reason': 'piecewise: needs no inference'}
        """
        header: dict[str, Any] = {name: getattr(self, name) for name in ("objective", "exact", "reason")}
        if self.remark:
            header["remark"] = self.remark
        if self.guarded:
            header |= {"guarded": True, "strength": self.strength}
        if self.held_out is not None:
            header["held_out"] = asdict(self.held_out)
        return State(header)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The plan whose `state` this is; ModelFileError if it is damaged."""
        made = cls(state.word("objective"), None, state.flag("exact"), state.word("reason"))
        told = state.header
        if "remark" in told:
            made = replace(made, remark=state.word("remark"))
        # Files of before there were guarded plans do not say so: their models answer as they did.
        if "guarded" not in told or not state.flag("guarded"):
            return made
        strength = told.get("strength")
        if strength not in STRENGTHS:
            refuse("the model file lacks the strength of its couplings")
        held_out = None
        if told.get("held_out") is not None:
            held_out = HeldOut.from_state(state.part("held_out"), strength)
        made = replace(made, guarded=True, strength=strength, held_out=held_out)
        return replace(made, engine=answering_engine(made)) if made.objective == "likelihood" else made


def plan_training(
    topology: Chains | Graphs,
    n_labels: int,
    *,
    objective: Any = "auto",
    engine: Any = "auto",
    n_jobs: int = 1,
    guarded: bool = False,
) -> Plan:
    """The plan for graphs like these; ``guarded`` for trainers that can choose the strength of couplings.

    >>> from crfield.core.topology import Chains
    >>> plan_training(Chains.from_lengths([4, 2]), 3).reason
    'likelihood: chains have exact inference'
    """
    one_of(*OBJECTIVES)("objective", objective)
    if objective in WITHOUT_INFERENCE:
        sampled = objective == "contrastive"
        reason = "expectations are sampled during training" if sampled else "needs no inference"
        return Plan(objective, None, exact=not sampled, reason=f"{objective}: {reason}")
    if isinstance(engine, str) and engine == "auto":
        choice = choose_engine(topology, n_labels, budget=TRAINING_BUDGET)
        exact = choice.name in EXACT
        if objective == "auto" and not exact:
            return _guarded(topology, n_labels, choice.reason, n_jobs) if guarded else _pseudo(choice.reason)
        chosen = "likelihood" if objective == "auto" else objective
        return Plan(chosen, with_jobs(choice.engine, n_jobs), exact, f"{chosen}: {choice.reason}")
    made, name = resolve_engine(engine, n_jobs=n_jobs)
    chosen = "likelihood" if objective == "auto" else objective
    return Plan(chosen, made, name in EXACT, f"{chosen} by the engine asked for, {name}")


def _pseudo(reason: str) -> Plan:
    return Plan("pseudo_likelihood", None, exact=True, reason=f"pseudo_likelihood, since {reason}")


def _guarded(topology: Chains | Graphs, n_labels: int, reason: str, n_jobs: int) -> Plan:
    # Microseconds for a link of a fit of some sixty evaluations, measured within a factor of two for 2 to 11 labels.
    seconds = topology.n_edges * (70 + 1.4 * n_labels**2) * 1e-6
    if seconds > SECONDS:
        told = f"pseudo_likelihood with couplings no stronger than held-out graphs bear, since {reason}"
        return Plan("pseudo_likelihood", None, exact=False, reason=told, guarded=True, seconds=seconds)
    told = f"likelihood bounded by trees (tree_reweighted), since {reason}"
    plan = Plan("likelihood", None, exact=False, reason=told, guarded=True, seconds=seconds)
    return replace(plan, engine=answering_engine(plan, n_jobs=n_jobs))


def answering_engine(plan: Plan, *, n_jobs: int = 1) -> Any:
    """The engine of beliefs for a model that was trained by a guarded plan: where it can be, that of its training."""
    name = "tree_reweighted" if plan.objective == "likelihood" else "loopy"
    return engine_named(name, damping=0.3, max_sweeps=100, tol=1e-4, n_jobs=n_jobs)


def told_strength(plan: Plan) -> str:
    """The strength that a guarded plan came to, in words.

    >>> found = HeldOut(5, 600, 1.0, (0.487, 0.6, 0.8, 0.9, 0.97), (-1.03, -0.8, -0.5, -0.3, -0.14))
    >>> print(told_strength(Plan("likelihood", None, False, "", True, strength=1.0, held_out=found)))
    1 of 0, ¼, ½, ¾, 1: on 5 held-out graphs .970 of nodes right (without edges .487), log-probability -0.14 (-1.03)
    """
    names = dict(zip(STRENGTHS, ("0", "¼", "½", "¾", "1")))
    found = plan.held_out
    if found is None or plan.strength is None:
        return "1, not checked: too few labelled nodes to hold some out" if plan.strength else "0, not checked"
    places = f"{found.n_graphs} held-out graphs" if found.n_graphs > 1 else "a held-out quarter"
    if plan.strength == 0:
        return f"0: neighbours did not help on {places}; the model is the one without edges"
    at = STRENGTHS.index(plan.strength)
    right, alone = (f"{found.accuracy[k]:.3f}".lstrip("0") for k in (at, 0))
    logs = f"{found.log_probability[at]:.2f} ({found.log_probability[0]:.2f})"
    listed = ", ".join(names.values())
    return (
        f"{names[plan.strength]} of {listed}: on {places} {right} of nodes right (without edges {alone}), "
        f"log-probability {logs}"
    )


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
    from dataclasses import fields, is_dataclass

    if n_jobs != 1 and is_dataclass(engine) and any(field.name == "n_jobs" for field in fields(engine)):
        return replace(engine, n_jobs=n_jobs)  # type: ignore[type-var]
    return engine
