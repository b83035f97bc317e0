"""Parameters of estimators, declared once: name, type, default, check, and how a model file holds the value.

    class Smoother(Estimator):
        width: int = parameter(integer(1), default=5)
        decode: str = parameter(one_of("viterbi", "marginal"), default="viterbi")

makes a class whose ``__init__`` takes both as keywords and only stores them, as scikit-learn asks:
`Estimator` turns the declarations into a dataclass, so signatures, ``get_params``, ``clone`` and pickle see ordinary
parameters, and type checkers know them by ``dataclass_transform``. ``Estimator.check`` goes through the checks.
What several estimators have in common is declared in a base class of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Literal, TypeVar

from crfield.core.checks import Check

_KEY, _TOLD = "parameter", "told"
NOTHING: Any = object()  # of a value for which there is no substitute
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _cached(function: _Function) -> _Function:
    return cache(function)  # type: ignore[return-value]  # a class is hashable, which mypy does not see


@dataclass(frozen=True)
class Declared:
    """What is declared of a parameter besides its name, type and default."""

    default: Any
    check: Check | Callable[[str, Any], None] | None
    stored: bool
    to_json: Callable[[Any], Any] | None
    from_json: Callable[[Any], Any] | None


def parameter(
    check: Check | Callable[[str, Any], None] | None = None,
    *,
    default: Any,
    kw_only: bool = True,
    stored: bool = True,
    to_json: Callable[[Any], Any] | None = None,
    from_json: Callable[[Any], Any] | None = None,
) -> Any:
    """Declare a parameter.

    ``check(name, value)`` raises `InputError` for a value that cannot be used. ``kw_only=False`` lets it be given by
    position. ``stored=False`` keeps it out of model files (code and places on disk are not stored); ``to_json`` and
    ``from_json`` are for values that are not numbers, words and lists of them.
    """
    declared = Declared(default, check, stored, to_json, from_json)
    return field(default=default, kw_only=kw_only, metadata={_KEY: declared})


@dataclass(frozen=True)
class Told:
    """How a model file holds an attribute that ``fit`` sets, beside the model itself."""

    name: str  # in the header
    to_json: Callable[[Any], Any]
    from_json: Callable[[Any], Any]
    missing: Any  # its value where a file does not tell, `NOTHING` for none at all


def learnt(
    *,
    stored: str | None = None,
    to_json: Callable[[Any], Any] = lambda value: value,
    from_json: Callable[[Any], Any] = lambda found: found,
    missing: Any = NOTHING,
    init: Literal[False] = False,
) -> Any:
    """Declare an attribute that ``fit`` sets: known to type checkers, not a parameter.

    ``stored`` is the name under which the header of a model file tells it, for what is no part of the model: its
    value by ``to_json``, read by ``from_json``, which refuses what is damaged; ``missing`` where a file says nothing.
    """
    told = {} if stored is None else {_TOLD: Told(stored, to_json, from_json, missing)}
    return field(init=init, metadata=told)


@_cached
def declared_parameters(cls: type) -> dict[str, Declared]:
    """The declarations of a class by name; those of its base classes first.

    >>> from crfield.core.estimator import Estimator
    >>> class Model(Estimator):
    ...     depth: int = parameter(default=1)
    >>> list(declared_parameters(Model))
    ['depth']
    """
    return _declarations(cls, _KEY)


@_cached
def told_attributes(cls: type) -> dict[str, Told]:
    """The learnt attributes that model files tell beside the model, by name.

    >>> from crfield.core.estimator import Estimator
    >>> class Model(Estimator):
    ...     source_: str = learnt(stored="source")
    >>> told_attributes(Model)["source_"].name
    'source'
    """
    return _declarations(cls, _TOLD)


def _declarations(cls: type, key: str) -> dict[str, Any]:
    if not hasattr(cls, "__dataclass_fields__"):
        return {}
    return {each.name: each.metadata[key] for each in fields(cls) if key in each.metadata}
