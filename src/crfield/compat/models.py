"""Models of CRFsuite, CRF++ and Wapiti as `ChainCRF`.

All three are weights on (feature, label) and on pairs of labels, which is what a `ChainCRF` is; only names differ.
Each reader of `storage` gives plain arrays, which are put here into the form of our own model files and then go
through the same door, with the same checks. So a model read from elsewhere predicts, explains, streams and is saved
like any other. It says of its training that it took place elsewhere; there are no intercepts and no boundary scores,
and what it was trained with (penalties, solver) is not in such files.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from crfield.data.label_json import label_to_json
from crfield.errors import ModelFileError, TemplateError
from crfield.estimators.chain.crf import ChainCRF
from crfield.features.templates.names import template_state
from crfield.features.templates.template import Template
from crfield.storage.files import Source, name_of
from crfield.storage.foreign.crfpp import CrfppModel, read_crfpp_model
from crfield.storage.foreign.crfsuite import CrfsuiteModel, read_crfsuite_model
from crfield.storage.foreign.wapiti import WapitiModel, read_wapiti_model
from crfield.storage.state import State

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]  # number of a name, label or pair, weight
_PLAIN = re.compile(r"%x\[\s*[+-]?[0-9]+\s*,\s*[0-9]+\s*\]")


def load_foreign(source: Source, kind: str) -> ChainCRF:
    """The model in a file of another tool: ``kind`` is "crfsuite", "crfpp" or "wapiti"."""
    if kind == "crfsuite":
        return from_crfsuite(read_crfsuite_model(source))
    try:
        return from_crfpp(read_crfpp_model(source)) if kind == "crfpp" else from_wapiti(read_wapiti_model(source))
    except TemplateError as error:
        raise ModelFileError(f"{name_of(source)}: the model's template cannot be used: {error}") from None


def from_crfsuite(model: CrfsuiteModel) -> ChainCRF:
    """A CRFsuite model as ours; labels and attributes keep their order.

    >>> crfsuite = CrfsuiteModel.of(["N", "V"], ["w:a"], state={("w:a", "V"): 1.5}, transitions={("V", "N"): 0.5})
    >>> from_crfsuite(crfsuite).predict([[{"w": "a"}, {"w": "b"}]])[0].tolist()
    ['V', 'N']
    """
    empty = np.zeros(0, np.int64)
    encoder = {"kind": "records", "transition_features": None, "standardize": False, "joined": True}
    arrays = {
        "encoder/pool": model.pool,
        "encoder/offsets": model.offsets,
        "encoder/slot_pool": np.zeros(0, np.uint8),
        "encoder/slot_offsets": np.zeros(1, np.int64),
        "encoder/slot_widths": empty,
    }
    n_columns = len(model.offsets) - 1
    ptr = np.searchsorted(model.attribute, np.arange(n_columns + 1)).astype(np.int64)
    return _chain(
        "CRFsuite",
        model.labels,
        encoder,
        arrays,
        node=(ptr, model.label, model.state_weight),
        transitions=(model.pair, model.pair_weight),
    )


def from_crfpp(model: CrfppModel) -> ChainCRF:
    """A text model of CRF++ as ours, with its template."""
    template = Template(model.template)
    if template.n_columns_needed > model.n_columns:
        raise ModelFileError(
            f"the text model of CRF++ is damaged: it was trained on {model.n_columns} columns, and its template "
            f"reads {template.n_columns_needed}."
        )
    n_labels = len(model.labels)
    single = np.array([name[0] == "U" for name in model.names], bool)
    rows = []
    for chosen, width in ((single, n_labels), (~single, n_labels**2)):
        numbers = np.flatnonzero(chosen)
        weights = model.weights[model.starts[numbers][:, None] + np.arange(width)]
        row, item = np.nonzero(weights)
        rows.append((numbers[row], item, weights[row, item]))
    return _with_template("CRF++", model.labels, template, list(model.names), rows[0], rows[1], marks="crfpp")


def from_wapiti(model: WapitiModel) -> ChainCRF:
    """A CRF of Wapiti as ours; its patterns become a template, those with ``*`` two lines of it."""
    lines = []
    for pattern in model.patterns:
        if pattern[:1] not in ("u", "U", "b", "B", "*") or "\n" in pattern:
            raise ModelFileError(f"the pattern {pattern[:60]!r} begins with none of u, b and *. Was the file edited?")
        if "%" in _PLAIN.sub("", pattern):
            raise ModelFileError(
                f"the pattern {pattern[:60]!r} cannot be read: only %x[row,column] with rows relative to the step is "
                "known here, not tests (%t), matches (%m), %X without case, or @ and * positions. Put what they "
                "compute into columns of the data, and train again."
            )
        if pattern[0] == "*":
            lines += [f"U{pattern}", f"B{pattern}"]
        else:
            lines.append(pattern[0].upper() + pattern[1:])
    template = Template("\n".join(lines))
    names = [name if name[0] == "*" else name[0].upper() + name[1:] for name in model.observations]
    # A starred observation is a name of both kinds: the second one stands behind all the others.
    starred = [k for k, name in enumerate(names) if name[0] == "*"]
    moved = np.arange(len(names))
    moved[starred] = len(names) + np.arange(len(starred))
    names += [f"B{names[k]}" for k in starred]
    for k in starred:
        names[k] = f"U{names[k]}"
    owner, pair, weight = model.pairs
    pairs = (moved[owner], pair, weight)
    return _with_template("Wapiti", model.labels, template, names, model.state, pairs, marks="wapiti")


def _with_template(
    tool: str, labels: tuple[str, ...], template: Template, names: list[str], state: Rows, pairs: Rows, *, marks: str
) -> ChainCRF:
    plain: dict[str, int] = {}  # bigram lines without a macro, and how often each stands there
    for line in template.text.split("\n"):
        line = line.strip(" \t\r")
        if line.startswith("B") and "%" not in line:
            plain[line] = plain.get(line, 0) + 1
    table = np.zeros(len(labels) ** 2)
    times = np.array([plain.get(name, 0) for name in names], np.float64)
    np.add.at(table, pairs[1], pairs[2] * times[pairs[0]])
    node_names = [k for k, name in enumerate(names) if name[0] == "U"]
    edge_names = [k for k, name in enumerate(names) if name[0] == "B"]
    encoder, arrays, node, edge = template_state(
        template, [names[k] for k in node_names], [names[k] for k in edge_names], marks=marks, free=frozenset(plain)
    )
    met = np.flatnonzero(table)
    return _chain(
        tool,
        labels,
        encoder,
        {f"encoder/{name}": array for name, array in arrays.items()},
        node=_gathered(state, np.array(node_names, np.int64)[node], len(names)),
        edge=_gathered(pairs, np.array(edge_names, np.int64)[edge], len(names)),
        transitions=(met, table[met]),
        template=template.text,
    )


def _gathered(rows: Rows, chosen: np.ndarray, n_names: int) -> Rows:
    """Lists (ptr, items, weights) of the chosen names, one after the other, items rising in each."""
    name, item, weight = rows
    order = np.lexsort((item, name))
    starts = np.searchsorted(name[order], np.arange(n_names + 1))
    lengths = np.diff(starts)[chosen]
    ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    at = order[np.arange(ptr[-1]) + np.repeat(starts[chosen] - ptr[:-1], lengths)]
    return ptr, item[at], weight[at]


def _chain(
    tool: str,
    labels: tuple[str, ...],
    encoder: dict[str, Any],
    arrays: dict[str, np.ndarray],
    *,
    node: Rows,
    transitions: tuple[np.ndarray, np.ndarray],
    edge: Rows | None = None,
    template: str | None = None,
) -> ChainCRF:
    """The model that our own file of these parts would hold."""
    n_edges = 0 if edge is None else len(edge[0]) - 1
    header = {
        "kind": "chain_crf",
        "parameters": {"template": template, "intercept": False, "boundaries": False},
        "labels": [label_to_json(label) for label in labels],
        "encoder": encoder,
        "layout": {
            "n_labels": len(labels),
            "n_columns": len(node[0]) - 1,
            "n_dense": 0,
            "bias": False,
            "boundaries": False,
            "n_edge_columns": n_edges,
            "n_edge_dense": 0,
        },
        "report": {
            "objective_": None,
            "n_iter_": 0,
            "n_evaluations_": 0,
            "converged_": True,
            "stop_reason_": f"trained by {tool}",
        },
    }
    arrays = arrays | {
        "layout/pairs": transitions[0].astype(np.int32),
        "layout/feature_ptr": node[0],
        "layout/feature_label": node[1].astype(np.int32),
    }
    weights = [node[2], transitions[1]]
    if n_edges and edge is not None:
        arrays |= {"layout/edge_ptr": edge[0], "layout/edge_pair": edge[1].astype(np.int32)}
        weights.append(edge[2])
    arrays["weights"] = np.concatenate(weights).astype(np.float64)
    return ChainCRF._from_state(State(header, arrays))
