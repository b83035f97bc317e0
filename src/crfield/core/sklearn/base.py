"""scikit-learn's base classes, taken up the moment that scikit-learn is imported, and not before.

Every estimator here is one of scikit-learn's: ``clone``, ``GridSearchCV``, metadata routing, tags, the two reprs and
``isinstance(model, sklearn.base.BaseEstimator)`` all hold. But importing scikit-learn takes longer than loading a
model and tagging with it, and neither needs it. So the classes of this module stand where scikit-learn's belong:

    before     BaseEstimator → _Alone (get_params, set_params, and the rest asks scikit-learn in)
    after      BaseEstimator → sklearn.base.BaseEstimator

What is written here for the time before is in classes *below* the stand-ins, which leave the order of resolution when
the bases are exchanged: afterwards everything is scikit-learn's own, as if it had been derived from at once. Python
recomputes the order of all classes derived; they and their instances stay the same objects, so that a model that was
loaded before is an estimator of scikit-learn after. What scikit-learn does when a class is derived (the methods
``set_fit_request`` …, the wrapped ``transform``) is done then for the classes that were made before.

Nobody has to say when: whoever needs scikit-learn imports it, and `_Watch` notices the import of ``sklearn.base`` (an
entry of ``sys.meta_path`` that finds nothing itself and leaves when it has seen it). Where it is imported already,
its classes are taken up here at once.

Why not methods of our own in place of scikit-learn's: they would have to follow every version of its protocol, and
``isinstance`` would still say no. Why not a class of its own for models out of files: it would be a second one.

Type checkers are shown `crfield.core.sklearn.declared`, since scikit-learn carries no types.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from typing import TYPE_CHECKING, Any, ClassVar

__all__ = ["BaseEstimator", "ClassifierMixin", "NotFitted", "RegressorMixin", "Tags", "TransformerMixin"]

if TYPE_CHECKING:
    from crfield.core.sklearn.declared import (
        BaseEstimator,
        ClassifierMixin,
        NotFitted,
        RegressorMixin,
        Tags,
        TransformerMixin,
    )
else:
    Tags = Any

    class _Alone:
        """An estimator as long as there is no scikit-learn: parameters; whatever else is asked imports it."""

        @classmethod
        def _get_param_names(cls):
            listed = list(inspect.signature(cls.__init__).parameters.values())[1:]
            return sorted(each.name for each in listed if each.kind is not each.VAR_KEYWORD)

        def get_params(self, deep=True):
            """The parameters by name; with ``deep`` those of estimators among them too, as ``part__name``."""
            found = {}
            for name in self._get_param_names():
                value = getattr(self, name)
                if deep and hasattr(value, "get_params") and not isinstance(value, type):
                    found |= {f"{name}__{inner}": own for inner, own in value.get_params().items()}
                found[name] = value
            return found

        def set_params(self, **params):
            """Set parameters by name; ``part__name`` reaches into a part that is an estimator itself."""
            inside = {}
            for name, value in params.items():
                part, inner, rest = name.partition("__")
                if inner:
                    inside.setdefault(part, {})[rest] = value
                else:
                    setattr(self, name, value)
            for part, own in inside.items():
                getattr(self, part).set_params(**own)
            return self

        def __getstate__(self):
            return self.__dict__.copy()

        def __setstate__(self, state):
            self.__dict__.update(state)

        def __repr__(self):
            return _asked(self).__repr__()

        def _repr_mimebundle_(self, **options):
            return _asked(self)._repr_mimebundle_(**options)

        @property
        def _repr_html_(self):
            return _asked(self)._repr_html_

        def __sklearn_tags__(self):
            return _asked(self).__sklearn_tags__()

        def get_metadata_routing(self):
            """What metadata the methods ask for; see scikit-learn."""
            return _asked(self).get_metadata_routing()

    class _AloneMixin:
        """What scikit-learn's mixins do, by scikit-learn."""

        def __sklearn_tags__(self):
            return _asked(self).__sklearn_tags__()

    class _AloneScored(_AloneMixin):
        def score(self, X, y, sample_weight=None):
            """Accuracy of a classifier, R² of a regression."""
            return _asked(self).score(X, y, sample_weight)

    class _AloneTransformer(_AloneMixin):
        def fit_transform(self, X, y=None, **fit_params):
            """``fit`` and ``transform`` of the same data."""
            return _asked(self).fit_transform(X, y, **fit_params)

        @property
        def set_output(self):
            """Which container ``transform`` gives; see scikit-learn, which decides who has this method."""
            return _asked(self).set_output

    class _AloneError(ValueError, AttributeError):
        pass

    # Bases can be exchanged between classes of Python's own making; none of these may derive from object directly.
    class BaseEstimator(_Alone):
        """scikit-learn's class of this name, or what stands for it."""

    class ClassifierMixin(_AloneScored):
        """scikit-learn's class of this name, or what stands for it."""

    class RegressorMixin(_AloneScored):
        """scikit-learn's class of this name, or what stands for it."""

    class TransformerMixin(_AloneTransformer):
        """scikit-learn's class of this name, or what stands for it."""

    class NotFitted(_AloneError):
        """scikit-learn's ``NotFittedError``, or what stands for it."""


_BASE = "sklearn.base"
_MIXINS = (BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin)


class _Progress:
    """How far it is."""

    taken = False  # whether the stand-ins are scikit-learn's
    telling = False  # whether scikit-learn is just told of the classes that were made before
    waiting: ClassVar[list[tuple[type, bool]]] = []  # these, and whether each is a group


def derived(cls: type, *, group: bool) -> bool:
    """To be told of every class derived; gives whether scikit-learn's own ``__init_subclass__`` is to be called now.

    For a ``group`` of parameters, which is never made, it is not called at all.
    """
    if not _Progress.taken:
        _Progress.waiting.append((cls, group))
    return _Progress.taken and not group


def taking_up() -> bool:
    """Whether scikit-learn is just told of the classes that were made before it came."""
    return _Progress.telling


def after_sklearn(cls: type) -> Any:
    """``super()`` behind the last of scikit-learn's classes that does something for every class derived."""
    own = [base for base in cls.__mro__ if _of_sklearn(base) and "__init_subclass__" in vars(base)]
    return super(own[-1], cls) if own else super(BaseEstimator, cls)


def take_up() -> None:
    """Derive the stand-ins from scikit-learn's classes; nothing where that is done."""
    if _Progress.taken:
        return
    base = importlib.import_module(_BASE)
    if _Progress.taken:  # by the watch, within this import
        return
    _Progress.taken = True
    for own in _MIXINS:
        _exchange(own, getattr(base, own.__name__))
    _exchange(NotFitted, importlib.import_module("sklearn.exceptions").NotFittedError)
    _Progress.telling = True
    try:
        for cls, group in _Progress.waiting:
            _announce(cls, group)
    finally:
        _Progress.telling = False
        _Progress.waiting.clear()


def _exchange(own: type, base: type) -> None:
    """Derive a stand-in from another class.

    Python recomputes the orders of resolution class by class, and one with two bases of which only one is new must
    have an order too: so first the new base comes before the old one, and then the old one goes.
    """
    own.__bases__ = (base, *own.__bases__)
    own.__bases__ = (base,)


def _announce(cls: type, group: bool) -> None:
    """What scikit-learn would have done when the class was made."""
    for base in cls.__mro__[1:]:
        hook = vars(base).get("__init_subclass__")
        if hook is not None and _of_sklearn(base) and not (group and issubclass(BaseEstimator, base)):
            hook.__get__(None, cls)()


def _of_sklearn(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "sklearn"


def _asked(estimator: Any) -> Any:
    """The same estimator, as scikit-learn's."""
    take_up()
    return estimator


class _Watch:
    """Sees the import of ``sklearn.base`` and lets it pass, with what is to be done after it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Where the others find the module; nothing of any other."""
        if name != _BASE or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec: Any = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Then(spec.loader)
                return spec
        return None


class _Then:
    """A loader that takes up the base classes once their module is there."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        """As the loader does it."""
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        """As the loader does it, and then the classes of the module are taken up."""
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        take_up()


if not TYPE_CHECKING:
    if _BASE in sys.modules:
        take_up()
    else:
        sys.meta_path.insert(0, _Watch())
