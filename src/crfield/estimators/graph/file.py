"""Graph models to a model file and back.

The file holds what prediction needs (labels of each kind, encoder, layout, weights), the parameters and the report
of training. An engine given as an object is stored by its name and its options, which are numbers and words; an
engine of the user's own is code and is not stored: the loaded model chooses for itself until ``set_params`` gives it
back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any

import numpy as np

from crfield.data.graphs.labels import GraphLabels
from crfield.data.label_json import label_from_json, label_to_json
from crfield.errors import InputError, ModelFileError
from crfield.estimators.graph.checks import check_graph_parameters
from crfield.estimators.graph.model import GraphModel
from crfield.features.graphs.encoder import GraphEncoder
from crfield.inference.graphs.catalogue import ENGINES, engine_named
from crfield.scoring.graph_layout import GraphLayout
from crfield.storage.archive import Archive, write_archive
from crfield.storage.checked import check_table, section
from crfield.training.graph.plan import STRENGTHS, HeldOut, Plan, answering_engine, resolve_engine

_REPORT = {
    "objective_": float,
    "n_iter_": int,
    "n_evaluations_": int,
    "converged_": bool,
    "stop_reason_": str,
}
_PLAN = ("objective", "exact", "reason")
_LARGEST_COUNT = 2**63 - 1


def save_graph(model: Any, path: Any) -> None:
    """Write a fitted model; see `GraphCRF.save`."""
    write_archive(path, *graph_state(model))


def load_graph(maker: type, archive: Archive) -> Any:
    """The model of class ``maker`` that an archive holds."""
    return graph_from_state(maker, archive.header, archive.arrays)


def graph_state(model: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A fitted model as a JSON header and arrays."""
    inner: GraphModel = model._fitted
    encoder_header, encoder_arrays = inner.encoder.state()
    layout_header, layout_arrays = inner.layout.state()
    header = {
        "kind": model.file_kind,
        "parameters": stored_parameters(model),
        "labels": inner.labels.to_json(),
        "encoder": encoder_header,
        "layout": layout_header,
        "report": {name: _number(getattr(model, name)) for name in _REPORT},
        "plan": plan_state(model.plan_),
    }
    arrays = {"weights": inner.weights}
    arrays |= {f"encoder/{name}": value for name, value in encoder_arrays.items()}
    arrays |= {f"layout/{name}": value for name, value in layout_arrays.items()}
    return header, arrays


def graph_from_state(maker: type, header: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    """The model whose `graph_state` this is; ModelFileError for whatever does not fit."""
    model = restored_model(maker, header, check_graph_parameters)
    set_report(model, header, _REPORT)
    _set_plan(model, header)
    encoder = GraphEncoder.from_state(section(header, "encoder"), own_arrays(arrays, "encoder/"))
    labels = GraphLabels.from_json(header.get("labels"))
    weights = arrays.get("weights")
    held = (0 if weights is None else weights.nbytes) + 32 * sum(labels.sizes)
    check_table(8 * max(labels.sizes) ** 2, held, f"the pairs of {max(labels.sizes):,} labels")
    layout = GraphLayout.from_state(
        section(header, "layout"), own_arrays(arrays, "layout/"), encoder.schema, labels.sizes
    )
    if tuple(kind.name for kind in encoder.schema.kinds) != labels.kinds or labels.sizes != layout.sizes:
        raise ModelFileError("the labels of the model file do not fit its weights: the file is damaged.")
    if (
        not isinstance(weights, np.ndarray)
        or weights.dtype != np.float64
        or weights.shape != (layout.n_weights,)
        or not np.isfinite(weights).all()
    ):
        raise ModelFileError(f"the model file must hold {layout.n_weights} finite weights: the file is damaged.")
    model._model = GraphModel(encoder, labels, layout, np.ascontiguousarray(weights))
    model.classes_ = labels.classes[labels.kinds[0]] if len(labels.kinds) == 1 else labels.classes
    model.history_ = []
    return model


def stored_parameters(model: Any) -> dict[str, Any]:
    """The parameters of a model as JSON values; code among them becomes None, an engine of one's own "auto"."""
    parameters = model.get_params(deep=False)
    return {name: _stored(name, value) for name, value in parameters.items() if name != "callback"}


def restored_model(maker: type, header: dict[str, Any], check: Callable[[Mapping[str, Any]], None]) -> Any:
    """A model that is not fitted yet, with the parameters of a header."""
    parameters = header.get("parameters")
    if not isinstance(parameters, dict):
        raise ModelFileError(f"the model file lacks its parameters. It was not written by {maker.__name__}.save.")
    known = maker().get_params(deep=False)
    try:
        model = maker(**{name: _restored(name, value) for name, value in parameters.items() if name in known})
        check(model.get_params(deep=False))
    except (InputError, TypeError) as error:
        raise ModelFileError(f"the model file's parameters cannot be used: {error} Was the file edited?") from None
    return model


def set_report(model: Any, header: dict[str, Any], names: Mapping[str, type]) -> None:
    """What a header says of training."""
    report = section(header, "report")
    for name, kind in names.items():
        value = report.get(name)
        if kind is float and value is None:
            value = math.nan
        if not isinstance(value, kind):
            raise ModelFileError(f"the model file's report of training lacks {name}.")
        setattr(model, name, value)


def _set_plan(model: Any, header: dict[str, Any]) -> None:
    plan = section(header, "plan")
    objective, exact, reason = (plan.get(name) for name in _PLAN)
    if not isinstance(objective, str) or not isinstance(exact, bool) or not isinstance(reason, str):
        raise ModelFileError("the model file does not say what was trained: the file is damaged.")
    # Files of before there were guarded plans have none of these: their models answer as they did.
    guarded, strength, remark = plan.get("guarded", False), plan.get("strength"), plan.get("remark", "")
    if not isinstance(guarded, bool) or not isinstance(remark, str) or (guarded and strength not in STRENGTHS):
        raise ModelFileError("the model file does not say how strong its couplings are: the file is damaged.")
    held_out = _held_out(plan.get("held_out"), strength) if guarded else None
    made = Plan(objective, None, exact, reason, guarded, strength=strength, held_out=held_out, remark=remark)
    model.plan_ = replace(made, engine=answering_engine(made)) if guarded and objective == "likelihood" else made


def plan_state(plan: Plan) -> dict[str, Any]:
    """A plan as JSON values; its engine is made again from the rest."""
    state: dict[str, Any] = {name: getattr(plan, name) for name in _PLAN}
    if plan.remark:
        state["remark"] = plan.remark
    if plan.guarded:
        state |= {"guarded": True, "strength": plan.strength}
    if plan.held_out is not None:
        state["held_out"] = asdict(plan.held_out)
    return state


def _held_out(found: Any, strength: Any) -> HeldOut | None:
    if found is None:
        return None
    told: dict[str, Any] = found if isinstance(found, dict) else {}
    counts = [told.get(name) for name in ("n_graphs", "n_nodes")]
    lists = [told.get(name) for name in ("accuracy", "log_probability")]
    if (
        not all(type(count) is int and 0 <= count <= _LARGEST_COUNT for count in counts)
        or not all(isinstance(some, list) and len(some) == len(STRENGTHS) for some in lists)
        or not all(type(x) in (int, float) and math.isfinite(x) for some in lists for x in some or ())
        or not isinstance(told.get("misfit"), bool)
    ):
        raise ModelFileError("what the model file says of held-out graphs cannot be: the file is damaged.")
    accuracy, logs = (tuple(float(x) for x in told[name]) for name in ("accuracy", "log_probability"))
    return HeldOut(told["n_graphs"], told["n_nodes"], float(strength), accuracy, logs, told["misfit"])


def _number(value: Any) -> Any:
    """A value of the report; contrastive training knows no objective (NaN), for which JSON has no number."""
    value = _plain(value)
    return None if isinstance(value, float) and math.isnan(value) else value


def _stored(name: str, value: Any) -> Any:
    if name != "forbidden":
        return _plain(value)
    items = [item.item() if isinstance(item, np.generic) else item for triple in value for item in triple]
    spelt = [label_to_json(item) for item in items]
    return [spelt[at : at + 3] for at in range(0, len(spelt), 3)]


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, Sequence | set | frozenset | np.ndarray) and not isinstance(value, str):
        return [_plain(item) for item in value]
    if callable(getattr(value, "infer", None)):
        return _plain_engine(value)
    return value if value is None or isinstance(value, bool | int | float | str) else None


def _plain_engine(engine: Any) -> Any:
    name = resolve_engine(engine)[1]
    if name not in ENGINES or not is_dataclass(engine):
        return "auto"
    return {"engine": name, "options": {f.name: _plain(getattr(engine, f.name)) for f in fields(engine)}}


def _restored(name: str, value: Any) -> Any:
    if name in ("engine", "map_engine") and isinstance(value, dict):
        options = value.get("options")
        if not isinstance(value.get("engine"), str) or not isinstance(options, dict):
            raise InputError(f"{name} is damaged: {value!r:.60}.")
        return engine_named(value["engine"], **options)
    if name == "forbidden" and isinstance(value, list):
        return [tuple(label_from_json(part) for part in item) if isinstance(item, list) else item for item in value]
    return value


def own_arrays(arrays: Any, prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin with a prefix, without it."""
    return {name[len(prefix) :]: arrays[name] for name in arrays if name.startswith(prefix)}
