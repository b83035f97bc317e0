"""`KernelCRF` to a model file and back: landmarks or waves are arrays, a kernel is a word and a few numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.data.graphs.labels import GraphLabels
from crfield.errors import InputError, ModelFileError
from crfield.estimators.graph.file import own_arrays, restored_model, set_report, stored_parameters
from crfield.estimators.similarity.checks import check_kernel_parameters
from crfield.estimators.similarity.crf import KernelCRF
from crfield.estimators.similarity.model import KernelModel, mapped_layout
from crfield.features.columns.random_features import Landmarks, Waves, map_from_arrays, map_to_arrays
from crfield.features.graphs.sequences_as_graphs import StepsOrGraphs
from crfield.scoring.similarity import Similarity
from crfield.storage.archive import Archive, write_archive
from crfield.storage.checked import section
from crfield.training.graph.plan import Plan

KIND = "kernel_crf"
_REPORT: dict[str, type] = {
    "objective_": float,
    "n_iter_": int,
    "n_evaluations_": int,
    "converged_": bool,
    "stop_reason_": str,
    "basis_": str,
    "n_components_": int,
}
_PLAN = ("objective", "exact", "reason")


def save_kernel(model: KernelCRF, path: Any) -> None:
    """Write a fitted model; see `KernelCRF.save`."""
    inner = model._fitted
    reader, arrays = inner.reader.state()
    stored = {f"encoder/{name}": value for name, value in arrays.items()} | {"weights": inner.weights}
    similarities: list[dict[str, Any] | None] = []
    for number, (found, coef) in enumerate(zip(inner.maps, inner.coefs)):
        similarities.append(_similarity(found))
        stored |= {f"map{number}/{name}": value for name, value in map_to_arrays(found).items()}
        stored[f"coef{number}"] = np.ascontiguousarray(coef)
    header = {
        "kind": KIND,
        "parameters": stored_parameters(model),
        "labels": inner.labels.to_json(),
        "reader": reader,
        "similarities": similarities,
        "ends": inner.ends,
        "report": {name: kind(getattr(model, name)) for name, kind in _REPORT.items()},
        "plan": {name: getattr(model.plan_, name) for name in _PLAN},
        "cliques": model.cliques_,
    }
    write_archive(path, header, stored)


def _similarity(found: Landmarks | Waves) -> dict[str, Any] | None:
    if isinstance(found, Waves):
        return None
    if not isinstance(found.similarity, Similarity):
        raise InputError(
            "a model with a similarity function of your own cannot be saved: the function is code. Keep it in a "
            "module and store the model with joblib, or use one of the similarities that have a name."
        )
    return found.similarity.to_json()


def load_kernel(archive: Archive) -> KernelCRF:
    """The model that an archive holds; ModelFileError for whatever does not fit."""
    header, arrays = archive.header, archive.arrays
    model: KernelCRF = restored_model(KernelCRF, header, check_kernel_parameters)
    set_report(model, header, _REPORT)
    plan = section(header, "plan")
    objective, exact, reason = (plan.get(name) for name in _PLAN)
    if not isinstance(objective, str) or not isinstance(exact, bool) or not isinstance(reason, str):
        raise ModelFileError("the model file does not say what was trained: the file is damaged.")
    model.plan_ = Plan(objective, None, exact, reason)
    reader = StepsOrGraphs.from_state(section(header, "reader"), own_arrays(arrays, "encoder/"))
    labels = GraphLabels.from_json(header.get("labels"))
    similarities, ends = header.get("similarities"), header.get("ends")
    kinds = reader.schema.kinds
    if (
        tuple(kind.name for kind in kinds) != labels.kinds
        or not isinstance(similarities, list)
        or len(similarities) != len(kinds)
        or not isinstance(ends, bool)
    ):
        raise ModelFileError("the parts of the model file do not fit together: the file is damaged.")
    maps, coefs = [], []
    for number, (kind, given) in enumerate(zip(kinds, similarities)):
        found = map_from_arrays(own_arrays(arrays, f"map{number}/"), _restored(given))  # type: ignore[arg-type]
        width = kind.columns[1] - kind.columns[0] + kind.dense[1] - kind.dense[0]
        source = found.omega.shape[0] if isinstance(found, Waves) else found.centres.shape[1]
        coef = arrays.get(f"coef{number}")
        if source != width or isinstance(found, Waves) != (given is None):
            raise ModelFileError("the model file's map does not fit its encoder: the file is damaged.")
        maps.append(found)
        coefs.append(_finite(coef, (found.width, labels.sizes[number])))
    try:
        layout = mapped_layout(
            reader.schema,
            labels.sizes,
            [0] * len(kinds),
            ends=ends,
            bias=bool(model.intercept),
            tables=dict(model.relations or {}),
            forbidden=labels.pairs(model.forbidden, reader.schema),
        )
    except InputError as error:
        raise ModelFileError(f"the model file's relations cannot be used: {error}") from None
    weights = _finite(arrays.get("weights"), (layout.n_weights,))
    model._model = KernelModel(reader, labels, tuple(maps), tuple(coefs), layout, weights, ends)
    model.classes_ = labels.classes[labels.kinds[0]] if len(labels.kinds) == 1 else labels.classes
    model.cliques_, model.rounds_, model.history_ = _cliques(header.get("cliques")), None, []
    return model


def _restored(given: Any) -> Similarity | None:
    if given is None:
        return None
    try:
        return Similarity(**given)
    except (TypeError, ValueError, InputError) as error:
        raise ModelFileError(f"the model file's similarity is damaged: {error}") from None


def _finite(array: Any, shape: tuple[int, ...]) -> np.ndarray:
    if (
        not isinstance(array, np.ndarray)
        or array.dtype != np.float64
        or array.shape != shape
        or not np.isfinite(array).all()
    ):
        raise ModelFileError(f"the model file must hold finite weights of shape {shape}: the file is damaged.")
    return np.ascontiguousarray(array)


def _cliques(given: Any) -> list[tuple[int, int]] | None:
    if given is None:
        return None
    try:
        return [(int(sequence), int(step)) for sequence, step in given]
    except (TypeError, ValueError):
        raise ModelFileError("the model file's cliques are damaged.") from None
