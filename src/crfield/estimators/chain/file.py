"""`ChainCRF` to a model file and back.

The file holds what prediction needs (labels, encoder, layout, weights), the parameters, and the report of training;
features that X passes through first are a part of the encoder's state;
those of `MEstimatedCRF` and `MEMM` differ in kind and parameters only. Functions are code and are not stored: a model
trained with feature functions is loaded with the same functions given again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import isfinite, nan
from typing import Any

import numpy as np

from crfield.data.labels import LabelCoder
from crfield.errors import InputError, ModelFileError
from crfield.estimators.chain.constraints import RULES, rules_from_json, rules_to_json
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.chain.model import ColumnModel, restore_input, stored_template
from crfield.features.templates.template import Template
from crfield.storage.archive import Archive, write_archive
from crfield.storage.files import same_file

KIND, M_ESTIMATED, LOCAL = "chain_crf", "m_estimated_crf", "memm"
_KINDS = {"ChainCRF": KIND, "MEstimatedCRF": M_ESTIMATED, "MEMM": LOCAL}
_CODE = ("functions", "transition_functions", "label_functions", "callback", "checkpoint")
_REPORT = {
    "objective_": float,
    "n_iter_": int,
    "n_evaluations_": int,
    "converged_": bool,
    "stop_reason_": str,
}


def save_chain(model: ChainCRF, path: Any) -> None:
    """Write a fitted model; see `ChainCRF.save`."""
    kept = model.get_params(deep=False).get("checkpoint")
    if kept is not None and isinstance(path, str | os.PathLike) and same_file(kept, path):
        raise InputError(
            f"{os.fspath(path)} is the file of checkpoint=…, which the next fit would look for; the model was not "
            "saved. Name another file."
        )
    inner = model._fitted
    if not isinstance(inner, ColumnModel):
        raise InputError(
            "a model of functions of two labels cannot be saved: its functions are code. Keep them in a module and "
            "store coef_ with numpy, or write the features as f(x, t), which can be saved."
        )
    encoder_header, encoder_arrays = inner.encoder.state()
    layout_header, layout_arrays = inner.layout.state()
    header = {
        "kind": next(_KINDS[c.__name__] for c in type(model).__mro__ if c.__name__ in _KINDS),
        "parameters": {
            k: _plain(k, v)
            for k, v in model.get_params(deep=False).items()
            if k not in (*_CODE, *RULES, "features") and not callable(v)
        }
        | rules_to_json(model.get_params(deep=False))
        | stored_template(inner.encoder),
        "labels": model._coder.to_json(),
        "encoder": encoder_header,
        "layout": layout_header,
        "report": {name: _plain(name, getattr(model, name)) for name in _REPORT}
        | {"n_seen_": int(getattr(model, "n_seen_", 0))},
    }
    if getattr(model, "source_", None):
        header["source"] = {str(name): str(value) for name, value in model.source_.items()}
    arrays = {"weights": inner.weights}
    arrays |= {f"encoder/{name}": value for name, value in encoder_arrays.items()}
    arrays |= {f"layout/{name}": value for name, value in layout_arrays.items()}
    write_archive(path, header, arrays)


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, Template):
        return value.text
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Sequence | set | frozenset | np.ndarray) and not isinstance(value, str):
        return [_plain(name, item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(name, item) for key, item in value.items()}
    if isinstance(value, float) and not isfinite(value):
        return None  # JSON has no such numbers; a model trained elsewhere has no objective
    return value if value is None or isinstance(value, bool | int | float | str) else None


def _checked_source(source: Any) -> dict[str, str]:
    """How the files of training were read, a few words by name."""
    good = isinstance(source, dict) and len(source) <= 20
    if not good or not all(isinstance(word, str) and len(word) <= 1000 for item in source.items() for word in item):
        raise ModelFileError("the model file's words on the source of its data are damaged.")
    return dict(source)


def load_chain(archive: Archive, *, functions: Sequence[Any] | None, transition_functions: Sequence[Any]) -> ChainCRF:
    """The model that an archive holds."""
    header, arrays = archive.header, archive.arrays
    parameters = header.get("parameters")
    maker: type[ChainCRF] = ChainCRF
    if header.get("kind") == M_ESTIMATED:
        from crfield.estimators.chain.m_estimated import MEstimatedCRF

        maker = MEstimatedCRF
    elif header.get("kind") == LOCAL:
        from crfield.estimators.chain.memm import MEMM

        maker = MEMM
    known = maker().get_params(deep=False)
    if not isinstance(parameters, dict) or not isinstance(header.get("layout"), dict):
        raise ModelFileError("the model file lacks its parameters or layout. It was not written by ChainCRF.save.")
    model = maker(**{k: v for k, v in parameters.items() if k in known and k not in (*_CODE, *RULES, "features")})
    try:
        model._check_parameters()
    except InputError as error:
        raise ModelFileError(f"the model file's parameters cannot be used: {error} Was the file edited?") from None
    restore_input(model, header, arrays)
    if functions is not None:
        model.set_params(functions=functions, transition_functions=transition_functions)
    model._labels_known = LabelCoder.from_json(header.get("labels"))
    model.classes_ = model._labels_known.classes_
    if "constraints" in known:
        model.set_params(**rules_from_json(parameters, arrays, model._labels_known))
        model._rules = model.constraints
    report = header.get("report")
    for name, kind in _REPORT.items():
        value = report.get(name) if isinstance(report, dict) else None
        if value is None and name == "objective_" and isinstance(report, dict) and name in report:
            value = nan
        if not isinstance(value, kind):
            raise ModelFileError(f"the model file's report of training lacks {name}.")
        setattr(model, name, value)
    seen = report.get("n_seen_") if isinstance(report, dict) else None
    model.n_seen_ = seen if isinstance(seen, int) and not isinstance(seen, bool) and seen >= 0 else 0
    model.history_ = []
    source = header.get("source")
    if source is not None:
        model.source_ = _checked_source(source)
    model._parts = (header, arrays, functions, transition_functions, model._labels_known.n_labels)
    return model
