"""`KernelLogistic` to a model file and back: a kernel, rows and their coefficients, parameters, the report."""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.errors import InputError, ModelFileError
from crfield.estimators.graph.file import own_arrays, restored_model
from crfield.estimators.maxent.file import REPORT, classifier_state, finite_floats, restore_classifier
from crfield.estimators.similarity.checks import CLASSIFIER_BASES, check_kernel_logistic
from crfield.estimators.similarity.logistic import KernelLogistic
from crfield.features.columns.random_features import Landmarks, map_from_arrays, map_to_arrays
from crfield.scoring.similarity import Similarity
from crfield.storage.archive import Archive, write_archive
from crfield.storage.checked import section

_DAMAGED = "The file is damaged."


def save_kernel_logistic(model: KernelLogistic, path: Any) -> None:
    """Write a fitted model; see `KernelLogistic.save`."""
    inner = model._fitted
    if not isinstance(inner.similarity, Similarity):
        raise InputError(
            "a model with a kernel of your own cannot be written to a model file, which holds no code. Use joblib, "
            "or one of the named kernels."
        )
    header = classifier_state(model) | {"similarity": inner.similarity.to_json(), "basis": model.basis_}
    arrays = {"intercept": model.intercept_}
    arrays |= {f"map/{name}": value for name, value in map_to_arrays(inner).items()}
    if model.import_vectors_ is not None:
        arrays["import_vectors"] = np.asarray(model.import_vectors_, np.int64)
    write_archive(path, header, arrays)


def load_kernel_logistic(archive: Archive) -> KernelLogistic:
    """The model that an archive holds; ModelFileError for whatever does not fit."""
    header, arrays = archive.header, archive.arrays
    model: KernelLogistic = restored_model(KernelLogistic, header, check_kernel_logistic)
    restore_classifier(model, header, REPORT)
    try:
        similarity = Similarity(**section(header, "similarity"))
    except (InputError, TypeError, ValueError) as error:
        raise ModelFileError(f"the model file's kernel cannot be used: {error} {_DAMAGED}") from None
    found = map_from_arrays(own_arrays(arrays, "map/"), similarity)
    size, width = len(model.classes_), getattr(model, "n_features_in_", None)
    if not isinstance(found, Landmarks) or found.whiten.shape[1] != size or found.centres.shape[1] != width:
        raise ModelFileError(f"the model file's rows do not fit {size} classes and {width} columns. {_DAMAGED}")
    basis, chosen = header.get("basis"), arrays.get("import_vectors")
    if basis not in CLASSIFIER_BASES or (chosen is not None and (chosen.dtype != np.int64 or chosen.ndim != 1)):
        raise ModelFileError(f"the model file does not say which rows were chosen. {_DAMAGED}")
    model.intercept_ = finite_floats(arrays, "intercept", (size,))
    model._map, model.basis_, model.import_vectors_ = found, basis, chosen
    return model
