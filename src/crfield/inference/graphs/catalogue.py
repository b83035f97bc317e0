"""Engines by name, and the one to take when none is named.

A name is what people write in an option or on a command line; behind it stands a frozen dataclass whose fields are
its options, so ``engine_named("loopy", damping=0.5)`` is `LoopyEngine` with that damping. Modules are imported
when an engine is first asked for: a program that labels chains never loads the sampler.

`choose_engine` is the rule behind "auto". Exact engines come first, the cheapest that applies: chains, forests,
then the junction tree if its plan, which is found without summing anything, stays within two limits: bytes, for the
tables of the largest component, and cells, for those of all cliques of all graphs, which is the time it takes.
Otherwise loopy belief propagation, which is not exact and says so. The choice comes with its reason as a sentence,
because a model that silently went from exact to approximate is one that nobody can trust.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from crfield.core.beliefs import Beliefs
from crfield.core.graphs import Graphs, link_matrix
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from crfield.inference.graphs.elimination import EliminationPlan

BUDGET = 2**28  # bytes of the tables of one component; all tables together may have four times as much
_LARGE = 2_500  # nodes of a component; larger ones are first looked at in part

_HOME: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "chain": ("crfield.inference.chain", "ChainEngine"),
        "forest": ("crfield.inference.graphs.forest", "ForestEngine"),
        "junction_tree": ("crfield.inference.graphs.junction_tree", "JunctionTreeEngine"),
        "loopy": ("crfield.inference.graphs.loopy", "LoopyEngine"),
        "tree_reweighted": ("crfield.inference.graphs.tree_reweighted", "TreeReweightedEngine"),
        "mean_field": ("crfield.inference.graphs.mean_field", "MeanFieldEngine"),
        "gibbs": ("crfield.inference.graphs.gibbs", "GibbsEngine"),
        "icm": ("crfield.inference.graphs.site_search", "IcmEngine"),
        "annealing": ("crfield.inference.graphs.site_search", "AnnealingEngine"),
        "cuts": ("crfield.inference.graphs.cuts", "CutEngine"),
        "expansion": ("crfield.inference.graphs.cuts", "ExpansionEngine"),
        "brute": ("crfield.inference.graphs.brute", "BruteEngine"),
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
        raise InputError(f"there is no engine {name!r}.{did_you_mean(name, ENGINES)} Engines: {', '.join(ENGINES)}.")
    module, maker = _HOME[name]
    return getattr(import_module(module), maker)


def choose_engine(
    scores: Potentials | Chains | Graphs,
    n_labels: int | np.ndarray | None = None,
    *,
    budget: int = BUDGET,
    n_jobs: int = 1,
) -> Choice:
    """The engine for these graphs: exact if the tables of each component fit ``budget`` bytes, and all four times it.

    ``scores`` are potentials, whose forbidden labels then take no room, or a topology and the number of labels, of
    all nodes or of each (N,).

    >>> import numpy as np
    >>> choose_engine(Chains.from_lengths([4, 2]), 3).reason
    'chains have exact inference'
    >>> square = Graphs(np.array([0, 4]), np.array([0, 1, 2, 3]), np.array([1, 2, 3, 0]))
    >>> choose_engine(square, 7).reason
    'junction tree: width 2, ... kB of tables, 742 cells to visit'
    >>> choose_engine(square, 7, budget=1000).reason
    'exact inference would be too large: a junction tree of width 2, ... kB of tables, 742 cells to visit'
    """
    topology = scores.topology if isinstance(scores, Potentials) else scores
    counts: np.ndarray | int
    if isinstance(scores, Potentials):
        counts = np.maximum((~np.isneginf(scores.node)).sum(axis=1), 1)
    elif n_labels is None or np.min(n_labels, initial=1) < 1:
        raise InputError(f"a topology does not say how many labels there are: n_labels ≥ 1, got {n_labels}.")
    else:
        counts = n_labels
    if isinstance(topology, Chains):
        return Choice(engine_named("chain", n_jobs=n_jobs), "chain", "chains have exact inference", exact=True)
    if topology.forest.all():
        reason = "graphs without a loop have exact inference"
        return Choice(engine_named("forest", n_jobs=n_jobs), "forest", reason, exact=True)
    part = _part(topology)
    if part is not None:
        graph, nodes = part
        fits, needs = _junction_tree(graph, counts if np.ndim(counts) == 0 else np.asarray(counts)[nodes], budget)
        if not fits:
            return _loopy(f"{needs} for {_LARGE:,} of its nodes alone", n_jobs)
    fits, needs = _junction_tree(topology, counts, budget)
    if fits:
        engine = engine_named("junction_tree", max_bytes=budget, n_jobs=n_jobs)
        return Choice(engine, "junction_tree", f"junction tree: {needs}", exact=True)
    return _loopy(needs, n_jobs)


def choose_map_engine(potentials: Potentials, *, budget: int = BUDGET, n_jobs: int = 1) -> Choice:
    """The engine for the best labelling: as `choose_engine`, but two labels that attract each other are cut exactly.

    >>> import numpy as np
    >>> ring = Graphs(np.array([0, 3]), np.array([0, 1, 2]), np.array([1, 2, 0]))
    >>> choose_map_engine(Potentials(np.zeros((3, 2)), np.eye(2)[None], ring), budget=10).name
    'cuts'
    >>> choose_map_engine(Potentials(np.zeros((3, 2)), -np.eye(2)[None], ring), budget=10).name
    'loopy'
    """
    choice = choose_engine(potentials, budget=budget, n_jobs=n_jobs)
    if choice.exact or potentials.n_labels != 2:
        return choice
    tables = potentials.edge[np.unique(potentials.tables)]
    if not np.isfinite(tables).all() or (tables[:, 0, 0] + tables[:, 1, 1] < tables[:, 0, 1] + tables[:, 1, 0]).any():
        return choice
    reason = "two labels that attract each other have their best labelling by a cut"
    return Choice(engine_named("cuts"), "cuts", reason, exact=True)


def _loopy(needs: str, n_jobs: int) -> Choice:
    reason = f"exact inference would be too large: a junction tree of {needs}"
    return Choice(engine_named("loopy", n_jobs=n_jobs), "loopy", reason, exact=False)


def _junction_tree(topology: Chains | Graphs, counts: np.ndarray | int, budget: int) -> tuple[bool, str]:
    """Whether the tables fit the budget, and what they need, in words."""
    from crfield.inference.graphs.elimination import in_words, plan

    found = plan(topology, counts)
    visits = _cells(found, counts)
    least = "" if found.complete else "at least "
    needs = f"{least}width {found.width}, {in_words(found.n_bytes)} of tables, {visits:.3g} cells to visit"
    return found.complete and found.n_bytes <= budget and 8 * visits <= 4 * budget, needs


def _part(topology: Graphs) -> tuple[Graphs, np.ndarray] | None:
    """The `_LARGE` nodes nearest to some node of the largest component as a graph, and their numbers.

    Planning costs more than linear time on wide graphs. A part is no wider than the whole, so a large graph that is
    hopeless is found out by a part of it.
    """
    sizes = np.bincount(topology.component)
    if sizes.max() <= _LARGE:
        return None
    from scipy.sparse.csgraph import breadth_first_order

    n = topology.n_nodes
    links = link_matrix(topology.tails, topology.heads, n)
    start = int(np.argmax(topology.component == np.argmax(sizes)))
    nodes = np.sort(breadth_first_order(links, start, directed=False, return_predecessors=False)[:_LARGE])
    number = np.full(n, -1, np.int64)
    number[nodes] = np.arange(len(nodes))
    tails, heads = number[topology.tails], number[topology.heads]
    inside = (tails >= 0) & (heads >= 0)
    return Graphs(np.array([0, len(nodes)]), tails[inside], heads[inside]), nodes


def _cells(found: EliminationPlan, counts: np.ndarray | int) -> float:
    """Cells of the tables of all cliques, of every graph: what one inference visits, a few times."""
    e = found.elimination
    logs = np.log(np.broadcast_to(counts, len(e.node))[e.node].astype(np.float64))
    ends = np.concatenate([np.zeros(1), np.cumsum(logs[e.scope])])
    with np.errstate(over="ignore"):
        return float(np.exp(logs + ends[e.scope_ptr[1:]] - ends[e.scope_ptr[:-1]]).sum())
