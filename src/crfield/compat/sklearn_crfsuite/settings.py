"""What the parameters of sklearn-crfsuite mean for a `ChainCRF`.

    objective    CRFsuite minimises −log p + c1 ‖w‖₁ + c2 ‖w‖², we −log p + l1 ‖w‖₁ + ½ l2 ‖w‖²: l1 = c1, l2 = 2 c2
    weights      pairs (attribute, label) and (label, label) that occur, or all; no intercepts, no boundary scores;
                 a feature that is False is there, with the value 0
    min_freq     fewest occurrences of a pair
    stopping     there: an improvement by the fraction delta in period steps; here: delta / period is the tolerance,
                 the fraction of the optimum that may be missing. ap, pa, arow: epsilon

What steers the inside of CRFsuite's optimisers (line search, memory, calibration of the learning rate) has no
counterpart: it is accepted, and a warning says so once. A parameter that belongs to another algorithm is an error, as
it is there.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crfield.compat.sklearn_crfsuite.frequent import frequent_chain
from crfield.core.checks import one_of
from crfield.errors import CrfieldWarning, InputError
from crfield.estimators.chain.crf import ChainCRF

_UNLIMITED = 2**31 - 1
_SMALLEST = 1e-12  # tolerance that stands for 0


@dataclass(frozen=True)
class _Algorithm:
    solver: str
    max_iterations: int
    takes: tuple[str, ...]  # parameters that CRFsuite knows for it
    inner: tuple[str, ...] = ()  # of these, the ones without a counterpart


_LBFGS = ("num_memories", "epsilon", "linesearch", "max_linesearch")
_CALIBRATION = tuple(f"calibration_{name}" for name in ("eta", "rate", "samples", "candidates", "max_trials"))
ALGORITHMS: dict[str, _Algorithm] = {
    "lbfgs": _Algorithm("auto", _UNLIMITED, ("c1", "c2", "period", "delta", *_LBFGS), _LBFGS),
    "l2sgd": _Algorithm("sgd", 1000, ("c2", "period", "delta", *_CALIBRATION), _CALIBRATION),
    "ap": _Algorithm("perceptron", 100, ("epsilon",)),
    "pa": _Algorithm(
        "passive_aggressive",
        100,
        ("epsilon", "pa_type", "c", "error_sensitive", "averaging"),
        ("error_sensitive",),
    ),
    "arow": _Algorithm("arow", 100, ("epsilon", "variance", "gamma")),
}
ALIASES = {"averaged-perceptron": "ap", "passive-aggressive": "pa"}  # python-crfsuite's
_VARIANTS = {0: "PA", 1: "PA-I", 2: "PA-II"}
_SPECIAL = ("c1", "c2", "period", "delta", *_LBFGS, *_CALIBRATION)
_SPECIAL += ("pa_type", "c", "error_sensitive", "averaging", "variance", "gamma")
# What CRFsuite itself takes: to spell it out is not worth a warning.
_DEFAULTS: dict[str, Any] = {
    "num_memories": 6,
    "epsilon": 1e-5,
    "linesearch": "MoreThuente",
    "max_linesearch": 20,
    "calibration_eta": 0.1,
    "calibration_rate": 2.0,
    "calibration_samples": 1000,
    "calibration_candidates": 10,
    "calibration_max_trials": 20,
    "error_sensitive": True,
}


def chain_for(parameters: Mapping[str, Any]) -> ChainCRF:
    """The unfitted `ChainCRF` that parameters of sklearn-crfsuite describe.

    >>> given = dict.fromkeys(("algorithm", "min_freq", "all_possible_states", "max_iterations", "trainer_cls"))
    >>> given |= dict.fromkeys((*_SPECIAL, "all_possible_transitions", "verbose", "n_jobs", "random_state"))
    >>> chain = chain_for({**given, "c1": 0.1, "c2": 0.05, "all_possible_transitions": True})
    >>> chain.l1, chain.l2, chain.transition_pairs, chain.intercept
    (0.1, 0.1, 'all', False)
    """
    name = parameters["algorithm"] or "lbfgs"
    name = ALIASES.get(name, name) if isinstance(name, str) else name
    one_of(*ALGORITHMS)("algorithm", name)
    algorithm = ALGORITHMS[name]
    given = {key: parameters[key] for key in _SPECIAL if parameters[key] is not None}
    foreign = sorted(set(given) - set(algorithm.takes))
    if foreign:
        raise InputError(
            f"algorithm={name!r} has no parameter {', '.join(foreign)}; it has {', '.join(algorithm.takes)} and "
            "max_iterations."
        )
    _warn(parameters, given, algorithm)
    if "delta" in algorithm.takes:
        tol = given.get("delta", 1e-5) / max(given.get("period", 10), 1)
    else:
        tol = given.get("epsilon", 1e-5)
    steps = algorithm.max_iterations if parameters["max_iterations"] is None else parameters["max_iterations"]
    settings: dict[str, Any] = {
        "l1": given.get("c1", 0.0),
        "l2": 2.0 * given.get("c2", 1.0) if "c2" in algorithm.takes else 0.0,
        "feature_pairs": "all" if parameters["all_possible_states"] else "observed",
        "transition_pairs": "all" if parameters["all_possible_transitions"] else "observed",
        "intercept": False,
        "boundaries": False,
        "solver": algorithm.solver,
        "solver_options": None if name == "lbfgs" else {"epochs": steps, **_options(name, given)},
        "tol": max(float(tol), _SMALLEST),
        "max_iter": steps,
        "n_jobs": parameters["n_jobs"],
        "random_state": parameters["random_state"],
        "verbose": 2 if parameters["verbose"] else 0,
    }
    return frequent_chain(float(parameters["min_freq"] or 0.0), **settings)


def _options(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of our solver that stand for parameters of CRFsuite's, with its defaults."""
    if name == "pa":
        variant = given.get("pa_type", 1)
        if variant not in _VARIANTS:
            raise InputError(f"pa_type must be 0, 1 or 2, got {variant!r}.")
        return {
            "variant": _VARIANTS[variant],
            "C": given.get("c", 1.0),
            "averaged": bool(given.get("averaging", True)),
        }
    if name == "arow":
        # Variances that begin at v times one, with γ, move the weights as variances of one do with γ / v.
        return {"r": given.get("gamma", 1.0) / given.get("variance", 1.0)}
    return {}


def _warn(parameters: Mapping[str, Any], given: Mapping[str, Any], algorithm: _Algorithm) -> None:
    idle = [key for key in algorithm.inner if key in given and given[key] != _DEFAULTS.get(key)]
    if parameters["trainer_cls"] is not None:
        idle.append("trainer_cls")
    if idle:
        warnings.warn(
            f"parameters of CRFsuite's own algorithm have no meaning here and are ignored: {', '.join(idle)}.",
            CrfieldWarning,
            stacklevel=4,
        )
