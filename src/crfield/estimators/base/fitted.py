"""`Fitted`: an estimator whose fitted model is one value, with one way to be saved, loaded and asked.

``fit`` ends with ``self._learn(model, result)``: the model is a value of parts (labels, encoder, weights …) that can
write itself down (``state``) and be made again (``from_state``). All else that a model file holds is the same for
every estimator and written here once: the kind, the parameters as declared, and the report of training.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np

from crfield.core.estimator import Estimator
from crfield.core.parameters import NOTHING, declared_parameters, learnt, told_attributes
from crfield.core.sklearn.base import NotFitted
from crfield.core.typing import File, Parameters
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, ModelFileError, NotFittedError
from crfield.estimators.base.reported import Reported
from crfield.optimize.history import Result, Step
from crfield.storage.archive import write_archive
from crfield.storage.state import State, reading
from crfield.training.cluster.current import CURRENT


class Model(Protocol):
    """What a fitted estimator holds: a value that can be stored."""

    def state(self) -> State:
        """Header and arrays, all that prediction needs."""
        ...

    @classmethod
    def from_state(cls, state: State, parameters: Parameters) -> Self:
        """The value whose `state` this is, given the estimator's parameters; ModelFileError if it is damaged."""
        ...


M = TypeVar("M", bound=Model)


class NotYetFitted(NotFittedError, NotFitted):
    """A model was asked before ``fit``, as both crfield and scikit-learn's tools say it."""


REPORTED: dict[str, type] = {  # what training may tell, and of which type it is
    "objective_": float,
    "n_iter_": int,
    "n_evaluations_": int,
    "converged_": bool,
    "stop_reason_": str,
    "n_rounds_": int,
    "solver_": str,
    "basis_": str,
    "n_components_": int,
    "n_split_": int,
    "n_features_": int,
    "n_seen_": int,
}
UNTOLD: dict[str, Any] = {"n_seen_": 0}  # what older files may lack


class Fitted(Reported, Estimator, Generic[M], group=True):
    """An estimator whose fitted model is one value of type M."""

    kind: ClassVar[str] = ""  # the word of its model files
    model_type: ClassVar[Any] = None  # the class of its fitted model
    reported: ClassVar[tuple[str, ...]] = ("objective_", "n_iter_", "n_evaluations_", "converged_", "stop_reason_")
    lazy: ClassVar[bool] = False  # whether arrays of a mapped file may wait on disk; what it shows must then wait too

    _model: M | None = learnt()
    classes_: Any = learnt()  # the labels, sorted, where a model has one set of them
    history_: list[Step] = learnt()
    _stored: State | None = learnt()  # of a file whose arrays are still on disk, until first asked

    def __init_subclass__(cls, kind: str | None = None, model: Any = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if kind is not None:
            cls.kind = kind
        if model is not None:
            cls.model_type = model

    def check(self, *names: str) -> None:
        """As every estimator; and InputError for one that is to be trained on a cluster and cannot."""
        super().check(*names)
        if not names and CURRENT.get() is not None and not self._clusters:
            raise InputError(
                f"{type(self).__name__} does not run on a cluster. Those that do are ChainCRF, MEMM, HMM with "
                "training='em', GraphCRF and its relatives, and ChainCRFCV. Fit it outside of the block."
            )

    @property
    def _clusters(self) -> bool:
        """Whether it can be trained on a cluster (`crfield.cluster`) as it is."""
        return False

    # ------------------------------------------------------------------ the fitted value

    @property
    def _fitted(self) -> M:
        """The fitted model; NotFittedError where there is none."""
        # The stored state first: another thread that has just built the model takes it away afterwards.
        stored, model = self.__dict__.get("_stored"), self.__dict__.get("_model")
        if model is None:
            if stored is None:
                raise NotYetFitted(
                    f"this {type(self).__name__} is not fitted yet. Call fit(X, y) first, or load a model file."
                )
            with reading("the model file", given=self.__dict__.get("functions") is not None):
                model = self._model = self._build(stored)
            self._stored = None
        return model

    def __sklearn_is_fitted__(self) -> bool:
        return self.__dict__.get("_model") is not None or self.__dict__.get("_stored") is not None

    def __getstate__(self) -> Any:
        if self.__dict__.get("_stored") is not None:
            self._fitted  # noqa: B018  (what is still on disk is read before it is pickled)
        return super().__getstate__()

    def _learn(self, model: M, result: Result | None = None) -> Self:
        """Take over a fitted model and the result of its training; the end of every ``fit``."""
        self._model, self._stored = model, None
        self._show(model)
        if result is not None:
            self.objective_ = float(result.value)
            self.n_iter_ = result.n_iter
            self.n_evaluations_ = result.n_evaluations
            self.converged_ = bool(result.converged)
            self.stop_reason_ = result.reason
            self.history_ = result.history
        return self

    def holding(self, model: M, result: Result | None = None) -> Self:
        """A copy of the estimator that answers by another model of its kind."""
        return copy.copy(self)._learn(model, result)

    def _show(self, model: M) -> None:
        """Set what is public of a fitted model, ``classes_`` and the like; after ``fit`` and after loading alike."""
        coder = getattr(model, "labels", None)
        if isinstance(coder, LabelCoder):
            self.classes_ = coder.classes_

    def _show_header(self, state: State) -> None:
        """Set what is public of a model whose arrays are still on disk."""

    # ------------------------------------------------------------------ files

    def save(self, path: File) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. Nothing in it is ever executed."""
        state = self._state()
        write_archive(path, state.header, state.arrays)

    def _state(self) -> State:
        """All that a model file holds."""
        state = self._fitted.state()
        header = {"kind": self.kind, "parameters": self._stored_parameters()}
        if self.reported:
            header["report"] = {name: json_value(getattr(self, name, UNTOLD.get(name))) for name in self.reported}
        for name, told in told_attributes(type(self)).items():
            if self.__dict__.get(name) is not None:
                header[told.name] = told.to_json(self.__dict__[name])
        return State(header | state.header, state.arrays)

    def _stored_parameters(self) -> dict[str, Any]:
        """The parameters as JSON values, without those that are code or places on disk."""
        out = {}
        for name, declared in declared_parameters(type(self)).items():
            if declared.stored:
                value = getattr(self, name)
                out[name] = json_value(value) if declared.to_json is None else declared.to_json(value)
        return out

    @classmethod
    def _from_state(cls, state: State, *, lazy: bool = False, **code: Any) -> Self:
        """The estimator of a model file; with ``lazy``, if its class is, its arrays are read when it is first asked.

        ``code`` is what no file holds (functions), given again by the user.
        """
        return cls._with_parameters(state)._restored(state, lazy=lazy and cls.lazy, **code)

    def _restored(self, state: State, *, lazy: bool, **code: Any) -> Self:
        self._set_report(state)
        if code:
            self.set_params(**code)
        self._stored = state
        if lazy:
            self._show_header(state)
        else:
            self._show(self._fitted)
        return self

    @classmethod
    def _with_parameters(cls, state: State) -> Self:
        """An estimator that is not fitted, with the parameters of a header."""
        found = state.header.get("parameters")
        if not isinstance(found, dict):
            raise ModelFileError(f"the model file lacks its parameters. It was not written by {cls.__name__}.save.")
        given = {}
        try:
            for name, declared in declared_parameters(cls).items():
                if name in found and declared.stored:
                    given[name] = found[name] if declared.from_json is None else declared.from_json(found[name])
            made = cls(**given)
            Estimator.check(made)
        except (InputError, TypeError, ValueError, LookupError) as error:
            raise ModelFileError(
                f"the model file's parameters cannot be used: {error} Was the file edited?"
            ) from None
        return made

    def _set_report(self, state: State) -> None:
        """What a header says of training."""
        told = state.part("report").header if self.reported else {}
        for name in self.reported:
            kind, value = REPORTED[name], told.get(name, UNTOLD.get(name))
            if kind is float and value is None:
                value = math.nan  # JSON has no such number; some trainings know no objective
            if not isinstance(value, kind):
                raise ModelFileError(f"the model file's report of training lacks {name}.")
            setattr(self, name, value)
        for name, each in told_attributes(type(self)).items():
            found = state.header.get(each.name)
            if found is not None or each.missing is not NOTHING:
                setattr(self, name, each.missing if found is None else each.from_json(found))
        self.history_ = []

    def _build(self, state: State) -> M:
        return self.model_type.from_state(state, self.get_params(deep=False))


def read_only(weights: np.ndarray) -> np.ndarray:
    """The same numbers, to be looked at and not changed."""
    seen = weights.view()
    seen.flags.writeable = False
    return seen


def fitted_of(model: Estimator) -> Any:
    """What a model has learnt, as one value of parts such as ``encoder`` and ``layout``; None where there is none."""
    return getattr(model, "_fitted", None)


def json_value(value: Any) -> Any:
    """A number, word or list as JSON has it; None for whatever has no place there, such as code.

    >>> json_value({"a": (1, np.float64(2.0)), "b": print, "c": math.nan})
    {'a': [1, 2.0], 'b': None, 'c': None}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dict):
        return {str(name): json_value(item) for name, item in value.items()}
    if isinstance(value, Sequence | set | frozenset | np.ndarray) and not isinstance(value, str | bytes):
        return [json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else None
