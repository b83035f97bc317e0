"""The latent models to a model file and back: labels, encoder, layout, weights, parameters, the report of training.

Functions are code and are not stored: a model trained with feature functions is loaded with the same functions given
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crfield.core.states import StateSpace
from crfield.core.topology import Chains
from crfield.data.batch import Batch
from crfield.data.label_json import label_from_json, label_to_json
from crfield.data.labels import LabelCoder
from crfield.errors import ModelFileError
from crfield.estimators.chain.model import build_columns, restore_input, stored_template
from crfield.estimators.graph.file import own_arrays, restored_model, set_report, stored_parameters
from crfield.estimators.latent.fit import REPORT
from crfield.estimators.latent.hidden_crf import HiddenCRF, check_hidden_parameters, with_window
from crfield.estimators.latent.latent_dynamic import LatentDynamicCRF, check_dynamic_parameters
from crfield.features.detect import encoder_from_state
from crfield.features.encoder import Encoder
from crfield.scoring.latent import ClassScorer
from crfield.scoring.layout import Layout
from crfield.storage.archive import Archive, write_archive
from crfield.storage.checked import section

DYNAMIC, HIDDEN = "latent_dynamic_crf", "hidden_crf"
_CODE = ("functions", "transition_functions", "callback")


def save_dynamic(model: LatentDynamicCRF, path: Any) -> None:
    """Write a fitted model; see `LatentDynamicCRF.save`."""
    inner = model._model
    layout_header, layout_arrays = inner.layout.state()
    header, arrays = _common(model, DYNAMIC, inner.encoder, inner.weights)
    header |= {"layout": layout_header, "states": model._space.counts.tolist()}
    if isinstance(model.n_states, Mapping):
        named = [[label_to_json(label), int(count)] for label, count in model.n_states.items()]
        header["parameters"]["n_states"] = named
    arrays |= {f"layout/{name}": value for name, value in layout_arrays.items()}
    write_archive(path, header, arrays)


def load_dynamic(
    archive: Archive, *, functions: Sequence[Any] | None = None, transition_functions: Sequence[Any] = ()
) -> LatentDynamicCRF:
    """The model that an archive holds; ModelFileError for whatever does not fit."""
    header = _named_states(archive.header)
    model: LatentDynamicCRF = restored_model(LatentDynamicCRF, header, check_dynamic_parameters)
    coder = _restore(model, archive)
    counts = header.get("states")
    good = isinstance(counts, list) and len(counts) == coder.n_labels
    if not good or not all(type(n) is int and 0 < n < 2**31 for n in counts):  # type: ignore[union-attr]
        raise ModelFileError("the model file does not say how many states each label has: the file is damaged.")
    states = StateSpace.repeated(np.array(counts))
    section(header, "layout")
    inner = build_columns(header, archive.arrays, functions, transition_functions, states.n_states)
    if functions is not None:
        model.set_params(functions=functions, transition_functions=transition_functions)
    model._labels_known, model._space, model._model = coder, states, inner
    return model


def save_hidden(model: HiddenCRF, path: Any) -> None:
    """Write a fitted model; see `HiddenCRF.save`."""
    header, arrays = _common(model, HIDDEN, model._encoder, model._weights)
    header["layout"], layout_arrays = model._scorer.columns.state()
    arrays |= {f"layout/{name}": value for name, value in layout_arrays.items()}
    write_archive(path, header, arrays)


def load_hidden(
    archive: Archive, *, functions: Sequence[Any] | None = None, transition_functions: Sequence[Any] = ()
) -> HiddenCRF:
    """The model that an archive holds; ModelFileError for whatever does not fit."""
    header, arrays = archive.header, archive.arrays
    model: HiddenCRF = restored_model(HiddenCRF, header, check_hidden_parameters)
    coder = _restore(model, archive)
    encoder = encoder_from_state(section(header, "encoder"), own_arrays(arrays, "encoder/"), functions=functions)
    layout = Layout.from_state(section(header, "layout"), own_arrays(arrays, "layout/"))
    scorer = ClassScorer(layout, coder.n_labels)
    weights = arrays.get("weights")
    if weights is None or weights.dtype != np.float64 or weights.shape != (scorer.n_weights,):
        raise ModelFileError(f"the model file must hold {scorer.n_weights} weights: the file is damaged.")
    if not np.isfinite(weights).all():
        raise ModelFileError("the model file's weights are not all finite numbers.")
    if functions is not None:
        model.set_params(functions=functions)
    model._labels_known, model._encoder, model._scorer = coder, encoder, scorer
    model._weights = np.ascontiguousarray(weights)
    if encoder.kind != "functions" or functions is not None:  # without its functions an encoder cannot encode
        node = with_window(encoder.encode([]), model.window).node
        wanted = ClassScorer.of_batch(Batch(Chains.from_lengths([]), node), n_classes=1, n_states=layout.n_labels)
        if wanted.columns.state()[0] != layout.state()[0] or wanted.columns.n_weights != layout.n_weights:
            raise ModelFileError("the weights of the model file do not fit its encoder: the file is damaged.")
    return model


def _common(model: Any, kind: str, encoder: Encoder, weights: np.ndarray) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays that both models have."""
    encoder_header, encoder_arrays = encoder.state()
    parameters = {name: value for name, value in stored_parameters(model).items() if name not in _CODE}
    parameters |= stored_template(encoder)
    header = {
        "kind": kind,
        "parameters": parameters,
        "labels": model._coder.to_json(),
        "encoder": encoder_header,
        "starts": [float(value) if np.isfinite(value) else None for value in model.start_objectives_],
        "report": {name: kind(getattr(model, name)) for name, kind in REPORT.items()},
    }
    return header, {"weights": weights} | {f"encoder/{name}": value for name, value in encoder_arrays.items()}


def _restore(model: Any, archive: Archive) -> LabelCoder:
    """Labels and report of a header; the labels are also given back."""
    set_report(model, archive.header, REPORT)
    starts = archive.header.get("starts")
    if not isinstance(starts, list) or not all(value is None or isinstance(value, float) for value in starts):
        raise ModelFileError("the model file's list of starts is damaged.")
    model.start_objectives_ = np.array([np.nan if value is None else value for value in starts])
    model.history_ = []
    restore_input(model, archive.header, archive.arrays)
    coder = LabelCoder.from_json(archive.header.get("labels"))
    model.classes_ = coder.classes_
    return coder


def _named_states(header: dict[str, Any]) -> dict[str, Any]:
    """The header with n_states as it was given: JSON has no keys but text."""
    parameters = section(header, "parameters")
    named = parameters.get("n_states")
    if not isinstance(named, list):
        return header
    try:
        counts = {label_from_json(label): count for label, count in named}
    except (TypeError, ValueError):
        raise ModelFileError("the model file's n_states cannot be read: the file is damaged.") from None
    return {**header, "parameters": {**parameters, "n_states": counts}}
