"""Conditional random fields and their family.

Names are loaded when first used, so ``import crfield`` itself costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME: dict[str, str] = {
    "MarkovRandomField": "crfield.estimators.markov_field",
    "DiscriminativeRandomField": "crfield.estimators.discriminative_field",
    "from_networkx": "crfield.data.graph_builders",
    "edge_list": "crfield.data.graph_builders",
    "layers": "crfield.data.graph_builders",
    "chain": "crfield.data.graph_builders",
    "grid": "crfield.data.graph_builders",
    "FactorialCRF": "crfield.estimators.factorial",
    "GridCRF": "crfield.estimators.grid",
    "GraphCRF": "crfield.estimators.graph",
    "Edges": "crfield.data.graph",
    "Graph": "crfield.data.graph",
    "ChainCRF": "crfield.estimators.chain",
    "Template": "crfield.features.template",
    "TokenColumns": "crfield.data.tokens",
    "load": "crfield.estimators.load",
    "make_phrases": "crfield.simulate.phrases",
    "phrase_features": "crfield.simulate.phrases",
    "read_columns": "crfield.storage.exchange",
    "read_crfsuite": "crfield.storage.exchange",
    "read_template": "crfield.estimators.load",
    "write_columns": "crfield.storage.exchange",
    "write_crfsuite": "crfield.storage.exchange",
}

__all__ = ["__version__", *_HOME]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'crfield' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOME))
