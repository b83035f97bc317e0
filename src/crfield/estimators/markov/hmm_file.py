"""`HMM` to a model file and back: labels, encoder, tables of probabilities, and the arrays of the emissions."""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.data.labels import LabelCoder
from crfield.errors import ModelFileError
from crfield.estimators.graph.file import own_arrays, restored_model, set_report, stored_parameters
from crfield.estimators.markov.hmm import HMM
from crfield.estimators.markov.hmm_checks import check_hmm
from crfield.features.detect import encoder_from_state
from crfield.scoring.densities.gaussian import family_of_kind
from crfield.storage.archive import Archive, write_archive
from crfield.storage.checked import section
from crfield.training.markov.durations import Durations

KIND = "hmm"
MOST_STATES = 65_535
_TABLES = ("start_probabilities_", "transition_probabilities_")
_REPORT = {"n_iter_": int, "converged_": bool, "objective_": float}


def save_hmm(model: HMM, path: Any) -> None:
    """Write a fitted model; see `HMM.save`."""
    encoder_header, encoder_arrays = model._encoder.state()
    objective = None if np.isnan(model.objective_) else float(model.objective_)
    header = {
        "kind": KIND,
        "parameters": stored_parameters(model),
        "labels": model._coder.to_json(),
        "encoder": encoder_header,
        "family": model.emissions_.kind,
        "report": {"n_iter_": int(model.n_iter_), "converged_": bool(model.converged_), "objective_": objective},
    }
    arrays = {name: np.ascontiguousarray(getattr(model, name), np.float64) for name in _TABLES}
    arrays |= {f"encoder/{name}": values for name, values in encoder_arrays.items()}
    arrays |= {f"emissions/{name}": np.ascontiguousarray(v) for name, v in model.emissions_.to_arrays().items()}
    if model._durations is not None:
        arrays["min_duration"] = np.ascontiguousarray(model._durations.least, np.int64)
    write_archive(path, header, arrays)


def load_hmm(archive: Archive) -> HMM:
    """The model that an archive holds; ModelFileError for whatever does not fit."""
    header, arrays = archive.header, archive.arrays
    model: HMM = restored_model(HMM, header, check_hmm)
    coder = LabelCoder.from_json(header.get("labels"))
    model._labels_known, model.classes_ = coder, coder.classes_
    model._encoder = encoder_from_state(section(header, "encoder"), own_arrays(arrays, "encoder/"))
    labels = coder.n_labels
    for name, shape in zip(_TABLES, ((labels,), (labels, labels))):
        table = arrays.get(name)
        if (
            table is None
            or table.dtype != np.float64
            or table.shape != shape
            or not (table >= 0).all()
            or not np.allclose(table.sum(axis=-1), 1.0)
        ):
            raise ModelFileError(f"{name} of the model file are no probabilities: the file is damaged.")
        setattr(model, name, np.ascontiguousarray(table))
    family = family_of_kind(header.get("family", "gaussian"))
    model.emissions_ = family.from_arrays(own_arrays(arrays, "emissions/"), n_labels=labels)
    model._durations = _durations(arrays, labels)
    empty = model._encoder.encode([]).node
    if empty.width + empty.n_dense != model.emissions_.n_columns:
        raise ModelFileError(
            f"the model file's encoder makes {empty.width + empty.n_dense} columns and its densities are for "
            f"{model.emissions_.n_columns}. The file was edited or put together wrongly: save the model again."
        )
    set_report(model, header, _REPORT)
    model.history_ = []
    return model


def _durations(arrays: Any, labels: int) -> Durations | None:
    least = arrays.get("min_duration")
    if least is None:
        return None
    if least.dtype != np.int64 or least.shape != (labels,) or least.min() < 1 or least.sum() > MOST_STATES:
        raise ModelFileError("min_duration of the model file is damaged.")
    return Durations(np.ascontiguousarray(least))
