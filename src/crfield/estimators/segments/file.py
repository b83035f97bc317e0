"""`SemiMarkovCRF` to a model file and back: labels, encoder, texts, layout and weights, no code."""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.data.label_json import label_from_json, label_to_json
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, ModelFileError
from crfield.estimators.chain.model import restore_input, stored_template
from crfield.estimators.graph.file import own_arrays, restored_model, set_report, stored_parameters
from crfield.estimators.segments.checks import check_semi_markov
from crfield.estimators.segments.model import SegmentModel
from crfield.estimators.segments.semi_markov import SemiMarkovCRF
from crfield.features.columns.segment_features import Trie
from crfield.features.detect import encoder_from_state
from crfield.kernels import linear
from crfield.scoring.segments import SegmentLayout
from crfield.storage.archive import Archive, write_archive
from crfield.storage.checked import section

KIND = "semi_markov"
_CODE = ("functions", "transition_functions", "callback")
_REPORT: dict[str, type] = {
    "objective_": float,
    "n_iter_": int,
    "n_evaluations_": int,
    "n_split_": int,
    "converged_": bool,
    "stop_reason_": str,
}


def save_semi_markov(model: SemiMarkovCRF, path: Any) -> None:
    """Write a fitted model; see `SemiMarkovCRF.save`."""
    inner = model._model
    if model.functions is not None or any(callable(source) for source in inner.sources):
        raise InputError(
            "a model with feature functions cannot be saved: they are code. Use joblib.dump(model, path), and load "
            "such files only from people you trust; or name the entries of dicts or the columns of rows instead."
        )
    encoder_header, encoder_arrays = inner.encoder.state()
    layout_header, layout_arrays = inner.layout.state()
    parameters = stored_parameters(model) | stored_template(inner.encoder)
    if isinstance(model.max_length, dict):
        parameters["max_length"] = [[label_to_json(label), int(most)] for label, most in model.max_length.items()]
    header = {
        "kind": KIND,
        "parameters": parameters,
        "labels": model._coder.to_json(),
        "joins": model._joins,
        "texts": list(inner.sources),
        "encoder": encoder_header,
        "layout": layout_header,
        "report": {name: kind(getattr(model, name)) for name, kind in _REPORT.items()},
    }
    arrays = {"weights": inner.weights}
    arrays |= {f"encoder/{name}": value for name, value in encoder_arrays.items()}
    arrays |= {f"layout/{name}": np.ascontiguousarray(value) for name, value in layout_arrays.items()}
    for number, trie in enumerate(inner.tries):
        arrays |= {f"texts{number}/{name}": np.ascontiguousarray(value) for name, value in trie.to_arrays().items()}
    write_archive(path, header, arrays)


def load_semi_markov(archive: Archive) -> SemiMarkovCRF:
    """The model that an archive holds; ModelFileError for whatever does not fit."""
    header, arrays = dict(archive.header), archive.arrays
    header["parameters"] = _parameters(header.get("parameters"))
    model: SemiMarkovCRF = restored_model(SemiMarkovCRF, header, check_semi_markov)
    for name in ("step_features", "segment_text"):
        setattr(model, name, tuple(getattr(model, name)))
    set_report(model, header, _REPORT)
    coder = LabelCoder.from_json(header.get("labels"))
    sources, joins = header.get("texts"), header.get("joins")
    if (
        not isinstance(sources, list)
        or not all(type(s) in (str, int) for s in sources)
        or not isinstance(joins, bool)
    ):
        raise ModelFileError("the model file does not say what texts are made of: the file is damaged.")
    layout = SegmentLayout.from_state(section(header, "layout"), own_arrays(arrays, "layout/"))
    weights = arrays.get("weights")
    if weights is None or weights.dtype != np.float64 or weights.shape != (layout.n_weights,):
        raise ModelFileError(f"the model file's weights do not fit its layout of {layout.n_weights}.")
    if not np.isfinite(weights).all():
        raise ModelFileError("the model file's weights are not all finite numbers.")
    if layout.n_labels != coder.n_labels:
        raise ModelFileError(f"the model file has {coder.n_labels} labels but a layout for {layout.n_labels}.")
    encoder = encoder_from_state(section(header, "encoder"), own_arrays(arrays, "encoder/"))
    tries = tuple(Trie.from_arrays(own_arrays(arrays, f"texts{k}/")) for k in range(len(sources)))
    inner = SegmentModel(encoder, tries, tuple(sources), layout, np.ascontiguousarray(weights))
    try:
        for name in ("steps", "base"):
            linear.Tagger(getattr(layout, name), weights[layout.part[name]])
    except (ValueError, IndexError, OverflowError, MemoryError) as error:
        raise ModelFileError(f"the model file's layout of the weights is damaged: {error}.") from None
    inner.data([])
    restore_input(model, header, arrays)
    model._model, model._coder, model._joins = inner, coder, joins
    model.classes_, model.history_ = coder.classes_, []
    return model


def _parameters(stored: Any) -> Any:
    """The parameters without code, and with the limits of labels as a dict again."""
    if not isinstance(stored, dict):
        return stored
    stored = {name: value for name, value in stored.items() if name not in _CODE}
    if not isinstance(stored.get("max_length"), list):
        return stored
    try:
        limits = {label_from_json(label): most for label, most in stored["max_length"]}
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"max_length of the model file is damaged: {error}.") from None
    return {**stored, "max_length": limits}
