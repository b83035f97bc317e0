"""`TreeCRF` to a model file and back: trees are arrays, so nothing but numbers and names is stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.boosting.round_table import RoundTable
from crfield.boosting.tree_field import TreeField
from crfield.data.labels import LabelCoder
from crfield.errors import ModelFileError
from crfield.estimators.boosted.tree_crf import TreeCRF, check_tree_parameters
from crfield.estimators.graph.file import own_arrays, restored_model, set_report, stored_parameters
from crfield.features.detect import encoder_from_state
from crfield.storage.archive import Archive, write_archive
from crfield.storage.checked import section

KIND = "tree_crf"
_REPORT: dict[str, type] = {"objective_": float, "n_iter_": int, "converged_": bool, "stop_reason_": str}


def save_tree(model: TreeCRF, path: Any) -> None:
    """Write a fitted model; see `TreeCRF.save`."""
    encoder_header, encoder_arrays = model._encoder.state()
    header = {
        "kind": KIND,
        "parameters": stored_parameters(model),
        "labels": model._coder.to_json(),
        "encoder": encoder_header,
        "n_columns": model.field_.trees.n_columns,
        "report": {name: kind(getattr(model, name)) for name, kind in _REPORT.items()},
        "rounds": model.rounds_.to_json(),
    }
    arrays = {f"encoder/{name}": value for name, value in encoder_arrays.items()}
    arrays |= {f"field/{name}": np.ascontiguousarray(value) for name, value in model.field_.to_arrays().items()}
    write_archive(path, header, arrays)


def load_tree(archive: Archive) -> TreeCRF:
    """The model that an archive holds; ModelFileError for whatever does not fit."""
    header, arrays = archive.header, archive.arrays
    model: TreeCRF = restored_model(TreeCRF, header, check_tree_parameters)
    set_report(model, header, _REPORT)
    model._labels_known = LabelCoder.from_json(header.get("labels"))
    model.classes_ = model._labels_known.classes_
    model._encoder = encoder_from_state(section(header, "encoder"), own_arrays(arrays, "encoder/"))
    n_columns = header.get("n_columns")
    empty = model._encoder.encode([]).node
    if n_columns != (2 * model.window + 1) * (empty.width + empty.n_dense):
        raise ModelFileError("the trees of the model file do not fit its encoder: the file is damaged.")
    model._field = TreeField.from_arrays(
        own_arrays(arrays, "field/"), n_columns=n_columns, n_labels=model._labels_known.n_labels
    )
    model.rounds_ = RoundTable.from_json(header.get("rounds"))
    return model
