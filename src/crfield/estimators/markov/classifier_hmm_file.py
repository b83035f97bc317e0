"""`ClassifierHMM` to a model file and back.

A classifier is code and arrays at once, and a model file holds no code. Two are stored, as arrays and a formula:
`LogitBoost` with stumps or trees, and scikit-learn's logistic regression. Others are refused with a word on what to
do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from crfield.boosting.logit_rounds import AdditiveLogit
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, ModelFileError
from crfield.estimators.boosted.boost_file import steps_from_state, steps_state
from crfield.estimators.boosted.logit_boost import LogitBoost, check_boost_parameters
from crfield.estimators.boosted.tree_crf_file import rounds_from_json, rounds_to_json
from crfield.estimators.graph.file import own_arrays, restored_model, stored_parameters
from crfield.estimators.markov.classifier_hmm import ClassifierHMM, check_hmm_parameters
from crfield.features.detect import encoder_from_state
from crfield.storage.archive import Archive, write_archive
from crfield.storage.checked import section

KIND = "classifier_hmm"
_TABLES = ("start_probabilities_", "transition_probabilities_", "class_shares_")
_BOOST, _LOGISTIC, _NONE = "logit_boost", "logistic_regression", "none"


def save_classifier_hmm(model: ClassifierHMM, path: Any) -> None:
    """Write a fitted model; see `ClassifierHMM.save`."""
    encoder_header, encoder_arrays = model._encoder.state()
    classifier_header, classifier_arrays = _classifier_state(model.classifier_)
    header = {
        "kind": KIND,
        "parameters": stored_parameters(model),
        "labels": model._coder.to_json(),
        "encoder": encoder_header,
        "classifier": {**classifier_header, "given": model.classifier is not None},
    }
    arrays = {name: np.ascontiguousarray(getattr(model, name), np.float64) for name in _TABLES}
    arrays |= {f"encoder/{name}": values for name, values in encoder_arrays.items()}
    arrays |= {f"classifier/{name}": np.ascontiguousarray(values) for name, values in classifier_arrays.items()}
    write_archive(path, header, arrays)


def load_classifier_hmm(archive: Archive) -> ClassifierHMM:
    """The model that an archive holds; ModelFileError for whatever does not fit."""
    header, arrays = archive.header, archive.arrays
    model: ClassifierHMM = restored_model(ClassifierHMM, header, check_hmm_parameters)
    coder = LabelCoder.from_json(header.get("labels"))
    model._labels_known, model.classes_, model.converged_ = coder, coder.classes_, True
    model._encoder = encoder_from_state(section(header, "encoder"), own_arrays(arrays, "encoder/"))
    labels = coder.n_labels
    for name in _TABLES:
        shape = (labels, labels) if name.startswith("transition") else (labels,)
        table = _floats(arrays, name, shape)
        if (
            (table < 0).any()
            or not np.allclose(table.sum(axis=-1), 1.0)
            or (name == _TABLES[-1] and (table <= 0).any())
        ):
            raise ModelFileError(f"{name} of the model file are no probabilities: the file is damaged.")
        setattr(model, name, table)
    empty = model._encoder.encode([]).node
    width = (2 * model.window + 1) * (empty.width + empty.n_dense)
    told = section(header, "classifier")
    model.classifier_ = _classifier_from_state(told, own_arrays(arrays, "classifier/"), labels, width)
    if told.get("given") and isinstance(model.classifier_, LogitBoost):
        model.classifier = LogitBoost(**model.classifier_.get_params(deep=False))
    elif told.get("given"):
        from sklearn.linear_model import LogisticRegression

        model.classifier = LogisticRegression()
    return model


def _classifier_state(classifier: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    from sklearn.linear_model import LogisticRegression

    if classifier is None:
        return {"type": _NONE}, {}
    if type(classifier) is LogisticRegression:
        return {"type": _LOGISTIC}, {"coef": classifier.coef_, "intercept": classifier.intercept_}
    if type(classifier) is not LogitBoost or not isinstance(classifier.learner, str):
        raise InputError(
            f"a model file holds no code, so the classifier {type(classifier).__name__} cannot be stored; LogitBoost "
            "of stumps or trees and LogisticRegression can. For others use joblib.dump(model, path), and load such "
            "files only from people you trust."
        )
    inner = classifier._additive
    header = {
        "type": _BOOST,
        "parameters": stored_parameters(classifier),
        "rounds": rounds_to_json(classifier.rounds_),
    }
    return header, {"start": inner.start, **steps_state(inner.steps, len(inner.start), [])}


def _classifier_from_state(
    header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], n_labels: int, width: int
) -> Any:
    kind = header.get("type")
    if kind == _NONE and n_labels == 1:
        return None
    if kind == _LOGISTIC and n_labels > 1:
        from sklearn.linear_model import LogisticRegression

        rows = 1 if n_labels == 2 else n_labels
        model = LogisticRegression()
        model.coef_, model.intercept_ = _floats(arrays, "coef", (rows, width)), _floats(arrays, "intercept", (rows,))
        model.classes_, model.n_features_in_ = np.arange(n_labels, dtype=np.int32), width
        return model
    if kind == _BOOST and n_labels > 1:
        boosted: LogitBoost = restored_model(LogitBoost, dict(header), check_boost_parameters)
        if not isinstance(boosted.discrete, list):
            raise ModelFileError("the parameter discrete of the model file's classifier is no list: damaged file?")
        boosted.discrete = tuple(boosted.discrete)
        start = _floats(arrays, "start", (n_labels,))
        steps = steps_from_state(arrays, n_labels, width, {})
        boosted.classes_, boosted.n_features_in_ = np.arange(n_labels, dtype=np.int32), width
        boosted._model, boosted._evidence, boosted.n_iter_ = AdditiveLogit(start, steps), {}, len(steps)
        boosted.rounds_ = rounds_from_json(header.get("rounds"))
        return boosted
    raise ModelFileError(f"the model file's classifier {kind!r:.40} cannot be read: the file is damaged or newer.")


def _floats(arrays: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    array = arrays.get(name)
    if array is None or array.dtype != np.float64 or array.shape != shape or not np.isfinite(array).all():
        raise ModelFileError(f"the array {name!r} must hold {shape} finite numbers: the file is damaged.")
    return np.ascontiguousarray(array)
