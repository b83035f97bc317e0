"""`ContinuousCRF` to a model file and back: an encoder, a handful of weights, the scale of the labels."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np

from crfield.errors import ModelFileError
from crfield.estimators.continuous import ContinuousCRF, check_continuous_parameters
from crfield.estimators.graph.file import own_arrays, restored_model, set_report, stored_parameters
from crfield.features.graphs.sequences_as_graphs import StepsOrGraphs
from crfield.scoring.quadratic import QuadraticScorer
from crfield.storage.archive import Archive, write_archive
from crfield.storage.checked import section

KIND = "continuous_crf"
_REPORT: dict[str, type] = {"objective_": float, "n_iter_": int, "converged_": bool, "stop_reason_": str}


def save_continuous(model: ContinuousCRF, path: Any) -> None:
    """Write a fitted model; see `ContinuousCRF.save`."""
    reader, arrays = model._reader.state()
    header = {
        "kind": KIND,
        "parameters": stored_parameters(model),
        "reader": reader,
        "labels": {"centre": model._centre, "scale": model._scale},
        "report": {name: kind(getattr(model, name)) for name, kind in _REPORT.items()},
    }
    stored = {f"encoder/{name}": value for name, value in arrays.items()} | {"weights": model._weights}
    if model._errors is not None:
        stored["errors"] = model._errors
    write_archive(path, header, stored)


def load_continuous(archive: Archive) -> ContinuousCRF:
    """The model that an archive holds; ModelFileError for whatever does not fit."""
    header, arrays = archive.header, archive.arrays
    model: ContinuousCRF = restored_model(ContinuousCRF, header, check_continuous_parameters)
    set_report(model, header, _REPORT)
    reader = StepsOrGraphs.from_state(section(header, "reader"), own_arrays(arrays, "encoder/"))
    node = reader.encode([]).node
    edge_columns = tuple(relation.n_columns + relation.n_dense for relation in reader.schema.relations)
    scorer = QuadraticScorer(model.association, node.width + node.n_dense, edge_columns)
    weights = arrays.get("weights")
    if (
        not isinstance(weights, np.ndarray)
        or weights.dtype != np.float64
        or weights.shape != (scorer.n_weights,)
        or not np.isfinite(weights).all()
    ):
        raise ModelFileError(f"the model file must hold {scorer.n_weights} finite weights: the file is damaged.")
    errors = arrays.get("errors")
    if errors is not None and (errors.dtype != np.float64 or errors.shape != weights.shape):
        raise ModelFileError("the model file's standard errors do not fit its weights: the file is damaged.")
    labels = section(header, "labels")
    centre, scale = labels.get("centre"), labels.get("scale")
    if not isinstance(centre, float) or not isinstance(scale, float) or not isfinite(centre) or not 0 < scale < 1e308:
        raise ModelFileError("the model file's scale of the labels is damaged.")
    model._reader, model._scorer, model._weights = reader, scorer, np.ascontiguousarray(weights)
    model._centre, model._scale = centre, scale
    model._errors = None if errors is None else np.ascontiguousarray(errors)
    model.history_ = []
    return model
