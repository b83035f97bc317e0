"""Pipelines of scikit-learn made of parts of this package: every question reaches through, and one file holds all.

scikit-learn's `Pipeline` knows ``predict``, ``predict_proba`` and ``score``. The models here can be asked more: n
best labellings, spans, explanations, importances. `Pipeline` is the same class with all of them: whatever method of
its last step takes data is called with data that passed through the steps before.

The file holds a header and arrays for each step, as the step itself would write them; transformers of others are code
and cannot be held.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol, runtime_checkable

import sklearn.pipeline

from crfield.core.typing import File
from crfield.errors import InputError, ModelFileError
from crfield.estimators.base.reported import Reported
from crfield.features.transformed import TRANSFORMERS, transformer_state
from crfield.storage.archive import Archive, read_archive, write_archive
from crfield.storage.state import State

KIND, THROUGH = "pipeline", "passthrough"
MOST = 100  # steps of a file
_ALONE = ("stream", "streams", "fit_encoded")  # take the rows of the last step, or leave the others out


@runtime_checkable
class Saved(Protocol):
    """A model that writes itself to a file."""

    def save(self, path: Any) -> None:
        """Write the model."""
        ...


class Pipeline(Reported, sklearn.pipeline.Pipeline):
    """A pipeline that can be asked whatever its last step can be asked, and that can be saved.

    Parameters
    ----------
    steps : list of (name, estimator)
        Transformers, and a model of this package as the last. ``Pipeline(other.steps)`` makes one of a pipeline that
        scikit-learn made, fitted or not.
    memory, verbose :
        As for scikit-learn's `Pipeline`.

    Examples
    --------
    >>> from crfield import ChainCRF, TextFeatures
    >>> pipe = Pipeline([("words", TextFeatures()), ("chain", ChainCRF())])
    >>> _ = pipe.fit([["Ana", "lives", "in", "Lima"]], [["B-PER", "O", "O", "B-LOC"]])
    >>> [span.label for span in pipe.predict_spans([["Eva", "lives", "in", "Lima"]])[0]]
    ['PER', 'LOC']
    >>> pipe.explain(["Eva", "lives", "in", "Lima"], 3).label
    'B-LOC'
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "steps" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        last = self.steps[-1][1]
        found = getattr(last, name)  # AttributeError where the last step has no such thing
        if not callable(found):
            return found
        if name == "export":
            return self._exported
        if name in _ALONE:
            raise InputError(
                f"{name} would leave out the steps before the model: ask the model itself, pipe[-1].{name}(…), with "
                "what pipe[:-1].transform(X) gives; ChainCRF(features=…) has its features inside."
            )
        parameters = list(inspect.signature(found).parameters)
        if not parameters or parameters[0] not in ("X", "x"):
            return found
        return self._through(found, single=parameters[0] == "x")

    def _exported(self, path: Any, **options: Any) -> None:
        """``export`` of the last step, with the step before it as its features."""
        before = [step for _, step in self.steps[:-1] if not (step is None or isinstance(step, str))]
        if len(before) > 1:
            raise InputError(
                f"a pipeline is exported as a model and at most one step before it, SensorFeatures; this one has "
                f"{len(before)}. Ask the model itself, pipe[-1].export(…): its file takes columns."
            )
        self.steps[-1][1].export(path, **({"features": before[0]} if before else {}) | options)

    def _through(self, method: Callable[..., object], *, single: bool) -> Callable[..., object]:
        @wraps(method)
        def asked(given: Any, *more: object, **options: object) -> object:
            data = self[:-1].transform([given] if single else given) if len(self.steps) > 1 else given
            answer = method(data[0] if single and len(self.steps) > 1 else data, *more, **options)
            name, last = self.steps[-1]
            if answer is last:
                return self
            return Pipeline([*self.steps[:-1], (name, answer)]) if type(answer) is type(last) else answer

        return asked

    def save(self, path: File) -> None:
        """Write all steps to one file, atomically; `crfield.load` reads it. Nothing in it is ever executed."""
        parts = [(str(name), _archive(str(name), step)) for name, step in self.steps]
        header = {"kind": KIND, "steps": [[name, part.header] for name, part in parts]}
        arrays = {f"step{k}/{own}": array for k, (_, part) in enumerate(parts) for own, array in part.arrays.items()}
        write_archive(path, header, arrays)


def save(model: object, path: File) -> None:
    """Write a model, a pipeline of scikit-learn, or features such as `TextFeatures` to one file.

    It is ``model.save(path)`` where the model has that; `crfield.load` reads the file. A pipeline may hold what this
    package has, and comes back as `crfield.Pipeline`.

    >>> import os, tempfile
    >>> from sklearn.pipeline import make_pipeline
    >>> from crfield import ChainCRF, TextFeatures, load
    >>> pipe = make_pipeline(TextFeatures(), ChainCRF()).fit([["Ana", "sings"]], [["PER", "O"]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(pipe, os.path.join(folder, "names.crfield"))
    ...     load(os.path.join(folder, "names.crfield")).predict_n_best([["Ana", "sings"]], 1)[0][0].labels.tolist()
    ['PER', 'O']
    """
    if isinstance(model, sklearn.pipeline.Pipeline) and not isinstance(model, Pipeline):
        model = Pipeline(model.steps)
    if getattr(model, "kind", None) in TRANSFORMERS:
        write_archive(path, *transformer_state(model))
    elif _is_ours(model) and isinstance(model, Saved):
        model.save(path)
    else:
        raise InputError(
            f"a {type(model).__name__} cannot be saved to a model file, which holds models, pipelines and features "
            "of crfield and no code. Use joblib.dump(model, path), and load such files only from people you trust."
        )


def pipeline_of(archive: Archive, load_step: Callable[[Archive, bool], object]) -> Pipeline:
    """The pipeline that an archive holds; ``load_step(archive, last)`` makes a step, which is the last or not."""
    steps = archive.header.get("steps")
    good = isinstance(steps, list) and 1 <= len(steps) <= MOST
    if not good or not all(isinstance(step, list) and len(step) == 2 for step in steps):  # type: ignore[union-attr]
        raise ModelFileError(f"the model file must hold 1 … {MOST} steps of a pipeline: the file is damaged.")
    made = []
    for k, (name, header) in enumerate(steps):  # type: ignore[arg-type]
        if not isinstance(name, str) or not isinstance(header, dict) or header.get("kind") == KIND:
            raise ModelFileError(f"step {k} of the pipeline in the file is none: the file is damaged.")
        if header.get("kind") == THROUGH:
            made.append((name, THROUGH))
            continue
        own = State({}, archive.arrays).under(f"step{k}")
        made.append((name, load_step(Archive(header, own), k == len(steps) - 1)))  # type: ignore[arg-type]
    names = [name for name, _ in made]
    taken = {"steps", "memory", "verbose", "transform_input"}
    if len(set(names)) < len(names) or taken & set(names) or any("__" in name for name in names):
        raise ModelFileError(f"the steps of the pipeline in the file are called {names!r:.80}: the file is damaged.")
    for name, step in made[:-1]:
        if step != THROUGH and not hasattr(step, "transform"):
            raise ModelFileError(f"the step {name!r} of the pipeline in the file transforms nothing.")
    return Pipeline(made)


def _archive(name: str, step: object) -> Archive:
    """What a step would write to a file of its own."""
    if step is None or (isinstance(step, str) and step == THROUGH):
        return Archive({"kind": THROUGH}, {})
    if isinstance(step, sklearn.pipeline.Pipeline):
        raise InputError(f"the step {name!r} is a pipeline itself: put its steps in its place to save it.")
    if not _is_ours(step):
        raise InputError(
            f"the step {name!r} is a {type(step).__name__}, which a model file cannot hold: it holds transformers "
            "and models of crfield, and no code. Leave it out (ChainCRF(standardize=True) scales columns itself), or "
            "use joblib.dump(pipe, path), and load such files only from people you trust."
        )
    stream = io.BytesIO()
    save(step, stream)
    stream.seek(0)
    return read_archive(stream)


def _is_ours(step: object) -> bool:
    return any(cls.__module__.split(".")[0] == "crfield" for cls in type(step).__mro__)
