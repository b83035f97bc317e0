"""Answers of a served model as JSON values.

The labels of one short sequence come from the tagger's compiled call and are put together as text, since the JSON of
every label is known before; everything else is asked of the estimator as a user would ask it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from crfield.errors import CrfieldError
from crfield.report.errors import step_text
from crfield.serve.asked import NOTHING, Data, Questions, label_of, refused, with_words
from crfield.serve.models import Served, json_label
from crfield.serve.wire import Refusal, kind_of, written

_DIGITS = 6
_TOLD = 40  # contributions in an explanation


def plain_answer(served: Served, data: Data) -> bytes:
    """The labels of sequences by the tagger, one compiled call each."""
    tag, texts = served.tag, served.texts
    try:
        parts = ["[" + ",".join([texts[label] for label in tag(x)]) + "]" for x in data.X]
    except CrfieldError as error:
        raise refused(error) from None
    listed = parts[0] if data.one else "[" + ",".join(parts) + "]"
    return f"{served.head}{listed}}}".encode("utf-8", "backslashreplace")


def answer(served: Served, data: Data, questions: Questions, said: list[str]) -> bytes:
    """Labels, and what else was asked for; ``said`` are warnings that came on the way."""
    if questions is NOTHING and served.quick and not said:
        body = plain_answer(served, data)
        if not said:
            return body
    told: dict[str, Any] = {
        "labels": [
            [json_label(label) for label in own] for own in with_words(lambda: _labels(served, data, questions))
        ]
    }
    told |= with_words(lambda: _more(served, data, questions, [len(own) for own in told["labels"]]))
    if data.one:
        told = {name: value[0] for name, value in told.items()}
    told = {"model": served.name, "version": served.version, **told}
    if questions.marginals:
        told["classes"] = served.columns
    if data.reading is not None:
        told["per_step"] = data.reading.per_step
        if data.reading.names is not None:
            told["names"] = list(data.reading.names)
    if said:
        told["warnings"] = said
    return written(told)


def _labels(served: Served, data: Data, questions: Questions) -> list[list[Any]]:
    if not len(data.X):
        return []
    known = {} if questions.known is None else {"known": questions.known}
    return [labels.tolist() for labels in served.model.predict(data.X, **known)]


def _more(served: Served, data: Data, questions: Questions, lengths: list[int]) -> dict[str, list[Any]]:
    model, X, told = served.model, data.X, {}
    known = {} if questions.known is None else {"known": questions.known}
    some = len(X) > 0
    if questions.marginals:
        tables = model.predict_proba(X, **known) if some else []
        told["probabilities"] = [np.round(table, _DIGITS).tolist() for table in tables]
    if questions.n_best:
        found = model.predict_n_best(X, questions.n_best, **known) if some else []
        told["n_best"] = [
            [
                {"labels": [json_label(label) for label in one.labels.tolist()], "probability": one.probability}
                for one in own
            ]
            for own in found
        ]
    if questions.spans:
        scheme = questions.spans if isinstance(questions.spans, str) else None
        listed = model.predict_spans(X, scheme=scheme, **known) if some else []
        told["spans"] = [
            [
                {"start": s.start, "stop": s.stop, "label": json_label(s.label), "probability": s.probability}
                for s in own
            ]
            for own in listed
        ]
    if questions.doubt:
        amounts = model.entropy(X, **known).tolist() if some else []
        told["doubt"] = [max(amount, 0.0) / max(steps, 1) for amount, steps in zip(amounts, lengths)]
    if questions.echo:
        told["steps"] = [shown_steps(x) for x in X]
        if data.reading is not None and data.reading.gold is not None:
            told["gold"] = [[None if one is None else json_label(one) for one in own] for own in data.reading.gold]
    return told


def shown_steps(x: Any) -> list[Any]:
    """The steps of a sequence for people: rows of numbers, columns of a token, or the text of a record.

    >>> shown_steps([("He", "PRP")]), shown_steps([{"pos": "NN", "word": "dog"}]), shown_steps(["dog"])
    ([['He', 'PRP']], [['dog', 'pos=NN']], [['dog']])
    """
    if isinstance(x, np.ndarray):
        rows: list[Any] = np.where(np.isfinite(x), np.round(x, 4), 0.0).tolist()
        return rows
    out = []
    for t in range(len(x)):
        item, first = x[t], step_text(x, t)
        if isinstance(item, dict):
            rest = [f"{name}={value}" for name, value in item.items() if value != first]
        elif isinstance(item, str):
            rest = []
        else:
            rest = [part if isinstance(part, str) else str(part[0]) for part in item if isinstance(part, str | tuple)]
            rest = rest[1:] if rest and rest[0] == first else rest
        out.append([first, *(text[:200] for text in rest[:40])])
    return out


# ---------------------------------------------------------------------------------------------------- why


def explanation(served: Served, data: Data, asked: dict[str, Any]) -> bytes:
    """Why a step has its label: the margin over the runner-up in its parts, and what would change it."""
    if not hasattr(served.model, "explain"):
        raise Refusal(422, f"{served.name} is a {type(served.model).__name__}, which cannot explain; a ChainCRF can.")
    step = asked.get("step")
    if type(step) is not int:
        raise Refusal(400, f"step must be a whole number, counted from 0, got {kind_of(step)}.", "step")
    if len(data.X) != 1:
        raise Refusal(400, f"an explanation is of one sequence, got {len(data.X)}.", "sequence")
    options = {name: label_of(asked[name], served, name) for name in ("label", "against") if name in asked}
    told = with_words(lambda: served.model.explain(data.X[0], step, **options))
    flip = told.flip
    return written(
        {
            "model": served.name,
            "version": served.version,
            "step": told.step,
            "label": json_label(told.label),
            "other": None if told.other is None else json_label(told.other),
            "margin": _finite(told.margin),
            "probability": told.probability,
            "other_probability": told.other_probability,
            "labels": [json_label(label) for label in told.labels],
            "other_labels": None if told.other_labels is None else [json_label(one) for one in told.other_labels],
            "contributions": [
                {
                    "name": one.text,
                    "feature": one.name,
                    "step": one.step,
                    "amount": _finite(one.amount),
                    "value": _finite(one.value),
                    "group": one.group,
                }
                for one in told.top(_TOLD)
            ],
            "left_out": max(len(told.contributions) - _TOLD, 0),
            "groups": {name: _finite(amount) for name, amount in told.by_group().items()},
            "flip": None
            if flip is None
            else {
                "text": str(flip),
                "becomes": None if flip.becomes is None else json_label(flip.becomes),
                "removed": [{"name": one.name, "step": one.step} for one in flip.removed],
            },
        }
    )


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
