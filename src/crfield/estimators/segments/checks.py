"""Parameters of a semi-Markov model, looked at before any work is done."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from crfield.core.checks import resolve_jobs
from crfield.errors import InputError
from crfield.estimators.chain.checks import check_numbers, check_template
from crfield.estimators.segments.labels import OUTSIDE, RUNS, check_segment_scheme
from crfield.features.columns.segment_features import check_symbols
from crfield.inference.decode import check_decoder
from crfield.scoring.segments import ROLES

_CHOICES = {"feature_pairs": ("observed", "all"), "transition_pairs": ("observed", "all", "none")}
_FLAGS = ("standardize", "intercept", "boundaries", "penalize_intercepts", "warm_start")
LONGEST = 1 << 20  # steps of a segment; more is a slip, or a model file that was edited


def check_semi_markov(parameters: Mapping[str, Any]) -> None:
    """InputError unless every parameter of `SemiMarkovCRF` has a value that can be used.

    >>> from crfield.estimators.segments.semi_markov import SemiMarkovCRF
    >>> check_semi_markov(SemiMarkovCRF(max_length=0).get_params(deep=False))
    Traceback (most recent call last):
    crfield.errors.InputError: max_length must be a whole number of at least 1, the most steps of a segment, got 0.
    """
    check_numbers(parameters)
    for name, choices in _CHOICES.items():
        if not isinstance(parameters[name], str) or parameters[name] not in choices:
            raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, got {parameters[name]!r}.")
    for name in _FLAGS:
        if not isinstance(parameters[name], bool | np.bool_):
            raise InputError(f"{name} must be True or False, got {parameters[name]!r}.")
    if not isinstance(parameters["verbose"], Integral) or parameters["verbose"] < 0:
        raise InputError(f"verbose must be 0, 1 or 2, got {parameters['verbose']!r}.")
    if parameters["callback"] is not None and not callable(parameters["callback"]):
        raise InputError(f"callback must be a function of (step, weights) or None, got {parameters['callback']!r}.")
    check_template(parameters["template"])
    scheme = parameters["scheme"]
    if not isinstance(scheme, str):
        raise InputError(f"scheme must be 'runs' or the name of a tag scheme such as 'iob2', got {scheme!r}.")
    check_segment_scheme(scheme)
    _check_lengths(parameters["max_length"])
    _check_roles(parameters["step_features"])
    length_bins(parameters["length_features"], 1)
    check_symbols(parameters["segment_text"])
    check_decoder(parameters["decode"])
    resolve_jobs(parameters["n_jobs"])


def _check_lengths(given: Any) -> None:
    for value in given.values() if isinstance(given, Mapping) else (given,):
        if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= int(value) <= LONGEST:
            raise InputError(
                f"max_length must be a whole number of at least 1, the most steps of a segment, got {value!r}."
            )


def _check_roles(given: Any) -> None:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InputError(f"step_features must be a tuple of {', '.join(map(repr, ROLES))}, got {given!r}.")
    for role in given:
        if role not in ROLES:
            raise InputError(f"step_features must be among {', '.join(map(repr, ROLES))}, got {role!r}.")
    if len(set(given)) != len(given):
        raise InputError(f"step_features names one twice: {given!r}.")


def length_limits(given: int | Mapping[Any, int], labels: Sequence[Hashable], scheme: str) -> np.ndarray:
    """(L,) the most steps of each label; outside all spans it is one unless the dict says otherwise.

    >>> length_limits(5, ["O", "PER"], "iob2").tolist()
    [1, 5]
    >>> length_limits({"walk": 9, "sit": 3}, ["sit", "walk"], "runs").tolist()
    [3, 9]
    """
    tagged = check_segment_scheme(scheme) != RUNS
    out = []
    for label in labels:
        if isinstance(given, Mapping):
            if label not in given and not (tagged and label == OUTSIDE):
                raise InputError(f"max_length says nothing of the label {label!r}; it knows {list(given)[:20]}.")
            out.append(given.get(label, 1))
        else:
            out.append(1 if tagged and label == OUTSIDE else given)
    return np.array(out, dtype=np.int32)


def length_bins(given: str | Sequence[int], most: int) -> np.ndarray:
    """(D,) the bin of each length, −1 where lengths have no weight.

    >>> length_bins("each", 4).tolist(), length_bins((1, 2, 5), 6).tolist(), length_bins("none", 2).tolist()
    ([0, 1, 2, 3], [0, 1, 1, 1, 2, 2], [-1, -1])
    """
    if isinstance(given, str):
        if given not in ("each", "none"):
            raise InputError(f"length_features must be 'each', 'none' or a list of lengths, got {given!r}.")
        return np.arange(most, dtype=np.int32) if given == "each" else np.full(most, -1, np.int32)
    if not isinstance(given, Sequence | np.ndarray) or not len(given):
        raise InputError(f"length_features must be 'each', 'none' or a list of lengths, got {given!r}.")
    if any(isinstance(cut, bool) or not isinstance(cut, Integral) or cut < 1 for cut in given):
        raise InputError(f"length_features must be whole numbers of at least 1, where bins begin, got {given!r}.")
    cuts = np.unique(np.array([1, *given], dtype=np.int64))
    return (np.searchsorted(cuts, np.arange(1, most + 1), side="right") - 1).astype(np.int32)
