"""Engines by name, and the one to take when none is named.

A name is what people write in an option or on a command line; behind it stands a frozen dataclass whose fields are
its options, so ``engine_named("loopy", damping=0.5)`` is `LoopyEngine` with that damping. Modules are imported
when an engine is first asked for: a program that labels chains never loads the sampler.

`choose_engine` is the rule behind "auto". Exact engines come first, the cheapest that applies: chains, forests,
then the junction tree if the tables of its cliques fit the budget. Its memory is also its time: an inference
visits each cell of each table a few times, so a budget in bytes bounds both. Otherwise loopy belief propagation,
which is not exact and says so. The choice comes with its reason as a sentence, because a model that silently went
from exact to approximate is one that nobody can trust.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from importlib import import_module
from types import MappingProxyType
from typing import Any, Protocol

from crfield.core.beliefs import Beliefs
from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.errors import InputError

BUDGET = 2**28  # bytes of clique tables; about a second of work

_HOME: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "chain": ("crfield.inference.chain", "ChainEngine"),
        "forest": ("crfield.inference.forest", "ForestEngine"),
        "junction_tree": ("crfield.inference.junction_tree", "JunctionTreeEngine"),
        "loopy": ("crfield.inference.loopy", "LoopyEngine"),
        "tree_reweighted": ("crfield.inference.tree_reweighted", "TreeReweightedEngine"),
        "mean_field": ("crfield.inference.mean_field", "MeanFieldEngine"),
        "gibbs": ("crfield.inference.gibbs", "GibbsEngine"),
        "icm": ("crfield.inference.site_search", "IcmEngine"),
        "annealing": ("crfield.inference.site_search", "AnnealingEngine"),
        "cuts": ("crfield.inference.cuts", "CutEngine"),
        "expansion": ("crfield.inference.expansion", "ExpansionEngine"),
        "brute": ("crfield.inference.brute", "BruteEngine"),
    }
)
ENGINES = tuple(_HOME)


class Engine(Protocol):
    """Anything that turns scores into beliefs."""

    def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
        """Total of each graph and its gradient with respect to the scores."""
        ...


@dataclass(frozen=True)
class Choice:
    """The engine that was chosen, its name, and why; and whether it is exact on the graphs it was chosen for."""

    engine: Engine
    name: str
    reason: str
    exact: bool


def engine_named(name: str, **options: Any) -> Engine:
    """The engine of that name with these options.

    >>> engine_named("chain", n_jobs=2)
    ChainEngine(n_jobs=2)
    >>> engine_named("lopy")
    Traceback (most recent call last):
    crfield.errors.InputError: there is no engine 'lopy'. Did you mean 'loopy'? Engines: chain, forest, ...
    >>> engine_named("chain", jobs=2)
    Traceback (most recent call last):
    crfield.errors.InputError: the engine 'chain' has no option 'jobs'; it has n_jobs.
    """
    maker = engine_class(name)
    known = [field.name for field in fields(maker)]
    for option in options:
        if option not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise InputError(f"the engine {name!r} has no option {option!r}; {has}.")
    return maker(**options)


def engine_class(name: str) -> Any:
    """The class behind a name.

    >>> engine_class("brute").__name__
    'BruteEngine'
    """
    if name not in _HOME:
        near = get_close_matches(str(name), ENGINES, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InputError(f"there is no engine {name!r}.{hint} Engines: {', '.join(ENGINES)}.")
    module, maker = _HOME[name]
    return getattr(import_module(module), maker)


def choose_engine(
    scores: Potentials | Chains | Graphs, n_labels: int | None = None, *, budget: int = BUDGET, n_jobs: int = 1
) -> Choice:
    """The engine for these graphs, exact if the tables that this takes fit ``budget`` bytes.

    ``scores`` are potentials, or their topology and the number of labels.

    >>> choose_engine(Chains.from_lengths([4, 2]), 3).reason
    'chain: 2 sequences, 6 steps'
    """
    topology = scores.topology if isinstance(scores, Potentials) else scores
    if isinstance(scores, Potentials):
        n_labels = scores.n_labels
    if n_labels is None or n_labels < 1:
        raise InputError(f"a topology alone does not say how many labels there are: n_labels ≥ 1, got {n_labels}.")
    if isinstance(topology, Chains):
        reason = f"chain: {topology.n_sequences:,} sequences, {topology.n_nodes:,} steps"
        return Choice(engine_named("chain", n_jobs=n_jobs), "chain", reason, exact=True)
    if topology.forest.all():
        reason = f"forest: {topology.n_sequences:,} graphs without a loop, {topology.n_nodes:,} nodes"
        return Choice(engine_named("forest", n_jobs=n_jobs), "forest", reason, exact=True)
    plan = engine_class("junction_tree").plan(topology, n_labels)
    needs = f"width {plan.width}, {_size(plan.n_bytes)}"
    if plan.n_bytes <= budget:
        engine = engine_named("junction_tree", n_jobs=n_jobs)
        return Choice(engine, "junction_tree", f"junction tree: {needs}", exact=True)
    reason = f"loopy belief propagation, not exact: a junction tree needs {needs}, the budget is {_size(budget)}"
    return Choice(engine_named("loopy", n_jobs=n_jobs), "loopy", reason, exact=False)


def _size(n_bytes: int) -> str:
    """Bytes for people; the tables of a wide tree may have more than a float can hold."""
    if n_bytes >= 10**15:
        return "more than 1,000 TB"
    power = max(0, (len(str(n_bytes)) - 1) // 3)
    return f"{n_bytes / 1000**power:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"
