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
        "expansion": ("crfield.inference.cuts", "ExpansionEngine"),
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
    """The engine that was chosen, its name, and why."""

    engine: Engine
    name: str
    reason: str


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
