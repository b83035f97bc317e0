"""Discriminative and Markov random fields to a model file and back.

Both lean on an estimator of scikit-learn, which is code and arrays at once. A model file holds no code, so only those
are stored that are a few arrays and a formula: logistic regression as the local classifier, Gaussian mixtures as
densities. Others are refused with a word on what to do (joblib, which trusts its files, stores any of them).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from crfield.data.graphs.labels import GraphLabels
from crfield.errors import InputError, ModelFileError
from crfield.estimators.graph.checks import check_answering
from crfield.estimators.graph.crf import GraphCRF
from crfield.estimators.graph.discriminative_field import DiscriminativeRandomField, check_field_parameters, names_for
from crfield.estimators.graph.file import own_arrays, restored_model, set_report, stored_parameters
from crfield.estimators.graph.markov_field import MarkovRandomField
from crfield.features.graphs.encoder import GraphEncoder
from crfield.scoring.interaction import FIXED
from crfield.storage.archive import Archive, write_archive
from crfield.storage.checked import section
from crfield.storage.state import State

_REPORT: dict[str, type] = {"objective_": float, "n_iter_": int, "converged_": bool}
_MIXTURE = ("weights_", "means_", "covariances_", "precisions_cholesky_")
_SHAPES = {
    "full": lambda k, d: (k, d, d),
    "tied": lambda k, d: (d, d),
    "diag": lambda k, d: (k, d),
    "spherical": lambda k, d: (k,),
}


def save_discriminative(model: DiscriminativeRandomField, path: Any) -> None:
    """Write a fitted field; see `DiscriminativeRandomField.save`."""
    from sklearn.linear_model import LogisticRegression

    weights = model._weights
    if type(model.local_) is not LogisticRegression:
        raise InputError(_refusal("local classifier", model.local_, "logistic regression"))
    header, arrays = _state(model)
    header["report"] = {name: kind(getattr(model, name)) for name, kind in _REPORT.items()}
    local = {"coef": model.local_.coef_[0], "intercept": model.local_.intercept_}
    arrays |= {"weights": weights, "scale": model._scale}
    arrays |= {f"local/{name}": np.asarray(values, np.float64) for name, values in local.items()}
    write_archive(path, header, arrays)


def load_discriminative(archive: Archive) -> DiscriminativeRandomField:
    """The field that an archive holds."""
    from sklearn.linear_model import LogisticRegression

    header, arrays = archive.header, archive.arrays
    model = restored_model(DiscriminativeRandomField, header, check_field_parameters)
    set_report(model, header, _REPORT)
    _restore(model, header, arrays)
    if model._labels_known.n_labels != 2:
        raise ModelFileError("a discriminative random field has two labels: the file is damaged.")
    scale = _floats(arrays, "scale", None)
    weights = _floats(arrays, "weights", (FIXED + 1 + len(scale),))
    coef = _floats(arrays, "local/coef", (_n_features(model._encoder),))
    local = LogisticRegression()
    local.classes_ = np.sort(names_for(model._labels_known))
    local.coef_, local.intercept_ = coef[None], _floats(arrays, "local/intercept", (1,))
    local.n_features_in_ = len(coef)
    weights.flags.writeable = False
    model.local_, model._scale, model.coef_ = local, scale, weights
    return model


def save_markov(model: MarkovRandomField, path: Any) -> None:
    """Write a fitted field; see `MarkovRandomField.save`."""
    from sklearn.mixture import GaussianMixture

    header, arrays = _state(model)
    for density in model.densities_:
        if type(density) is not GaussianMixture:
            raise InputError(_refusal("density", density, "a Gaussian mixture"))
    header["covariance_type"] = model.densities_[0].covariance_type
    field = model.field_._state()
    header["field"] = field.header
    arrays |= {f"field/{name}": values for name, values in field.arrays.items()}
    for code, density in enumerate(model.densities_):
        arrays |= {f"density {code}/{name}": np.asarray(getattr(density, name), np.float64) for name in _MIXTURE}
    write_archive(path, header, arrays)


def load_markov(archive: Archive) -> MarkovRandomField:
    """The field that an archive holds."""
    header, arrays = archive.header, archive.arrays
    model = restored_model(MarkovRandomField, header, check_answering)
    _restore(model, header, arrays)
    model.field_ = GraphCRF._from_state(State(header, arrays).part("field"))
    if model.field_._coder.sizes != model._labels_known.sizes:
        raise ModelFileError("the field of the labels does not fit the labels: the file is damaged.")
    model.converged_ = model.field_.converged_
    codes = range(model._labels_known.n_labels)
    form, width = header.get("covariance_type"), _n_features(model._encoder)
    model.densities_ = [_mixture(own_arrays(arrays, f"density {code}/"), form, width) for code in codes]
    return model


def _state(model: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What both have: parameters, labels, encoder."""
    labels = model._coder.to_json()
    encoder_header, encoder_arrays = model._encoder.state()
    header = {
        "kind": model.file_kind,
        "parameters": stored_parameters(model),
        "labels": labels,
        "encoder": encoder_header,
    }
    return header, {f"encoder/{name}": values for name, values in encoder_arrays.items()}


def _restore(model: Any, header: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    model._encoder = GraphEncoder.from_state(section(header, "encoder"), own_arrays(arrays, "encoder/"))
    model._labels_known = GraphLabels.from_json(header.get("labels"))
    kinds = tuple(kind.name for kind in model._encoder.schema.kinds)
    if len(kinds) != 1 or kinds != model._labels_known.kinds:
        raise ModelFileError("the labels of the model file do not fit its features: the file is damaged.")
    model.classes_ = model._labels_known.classes[kinds[0]]


def _n_features(encoder: GraphEncoder) -> int:
    kind = encoder.schema.kinds[0]
    return kind.columns[1] - kind.columns[0] + kind.dense[1] - kind.dense[0]


def _mixture(arrays: Mapping[str, np.ndarray], form: Any, width: int) -> Any:
    from sklearn.mixture import GaussianMixture

    if not isinstance(form, str) or form not in _SHAPES:
        raise ModelFileError(f"the form {form!r} of the densities is unknown: the file is damaged.")
    weights = _floats(arrays, "weights_", None)
    if not len(weights) or (weights <= 0).any():
        raise ModelFileError("the shares of a mixture must be positive: the file is damaged.")
    mixture = GaussianMixture(len(weights), covariance_type=form)
    shape = _SHAPES[form](len(weights), width)
    mixture.weights_, mixture.means_ = weights, _floats(arrays, "means_", (len(weights), width))
    mixture.covariances_ = _floats(arrays, "covariances_", shape)
    mixture.precisions_cholesky_ = _floats(arrays, "precisions_cholesky_", shape)
    mixture.n_features_in_, mixture.converged_ = width, True
    return mixture


def _floats(arrays: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...] | None) -> np.ndarray:
    """An array of finite numbers of a shape; without one, of one dimension."""
    found = arrays.get(name)
    if (
        not isinstance(found, np.ndarray)
        or found.dtype != np.float64
        or (found.ndim != 1 if shape is None else found.shape != shape)
        or not np.isfinite(found).all()
    ):
        raise ModelFileError(f"the array {name!r} of the model file does not fit: the file is damaged.")
    return np.array(found)


def _refusal(what: str, estimator: Any, kept: str) -> str:
    return (
        f"a model file holds no code, so the {what} must be {kept}, got {type(estimator).__name__}. Store such a "
        "model with joblib.dump(model, path), and read only files that you trust."
    )
