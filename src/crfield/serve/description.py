"""The interface as OpenAPI 3.1, for programs that make clients of such descriptions."""

from __future__ import annotations

from typing import Any

import crfield

_STEP: dict[str, Any] = {
    "description": "A token as columns or a plain word, a feature record, feature strings, or a row of numbers.",
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": ["string", "number", "null"]}},
        {"type": "object"},
    ],
}
_SEQUENCE = {"type": "array", "items": _STEP}
_LABEL: dict[str, Any] = {"type": ["string", "integer", "boolean"]}
_ERROR = {
    "description": "A request that cannot be answered; the message is the library's.",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {
                    "error": {
                        "type": "object",
                        "properties": {
                            "status": {"type": "integer"},
                            "message": {"type": "string"},
                            "where": {"type": "string"},
                        },
                        "required": ["status", "message"],
                    }
                },
            }
        }
    },
}


def description(models: list[str], *, labelling: bool) -> dict[str, Any]:
    """The interface of a server with these models.

    >>> sorted(description(["tags"], labelling=False)["paths"])[:3]
    ['/healthz', '/metrics', '/openapi.json']
    """
    data = {
        "model": {"type": "string", "enum": models},
        "sequence": _SEQUENCE,
        "sequences": {"type": "array", "items": _SEQUENCE},
        "text": {"type": "string", "description": "The lines of a file, as the model's own files are."},
    }
    known = {"description": "Labels that are certain: a label, a list of possible ones, or null for each step."}
    predict = {
        "marginals": {"type": "boolean"},
        "n_best": {"type": "integer", "minimum": 0, "maximum": 100},
        "spans": {"type": ["boolean", "string"], "description": "true, or a tag scheme: iob2, bioes, runs, …"},
        "known": known,
        "doubt": {"type": "boolean", "description": "The entropy of each sequence for a step."},
        "echo": {"type": "boolean", "description": "The steps as they were read."},
    }
    explain = {"step": {"type": "integer"}, "label": _LABEL, "against": _LABEL}
    paths = {
        "/v1/predict": _post("Labels of sequences, and what else is asked for.", data | predict),
        "/v1/explain": _post("Why a step has its label, and what would change it.", data | explain, ["step"]),
        "/v1/models": _get("Which models there are, what they read and which labels they have."),
        "/healthz": _get("That the server is there."),
        "/metrics": _get("Counts as text for Prometheus.", "text/plain"),
        "/openapi.json": _get("This description."),
    }
    if labelling:
        person = {"person": {"type": "string", "maxLength": 64}}
        answer = person | {
            "sequence": {"type": "integer"},
            "version": {"type": "integer", "description": "The version that the answer replaces."},
            "labels": {"type": "array", "items": {"anyOf": [_LABEL, {"type": "null"}]}},
        }
        paths |= {
            "/v1/labelling": _get("How far the labelling has come."),
            "/v1/labelling/next": _post("The sequence that the model is least sure of, leased.", person, ["person"]),
            "/v1/labelling/answer": _post(
                "Store an answer; 409 where another is there already.", answer, list(answer)
            ),
            "/v1/labelling/skip": _post("Give a sequence back.", person | {"sequence": {"type": "integer"}}),
            "/v1/labelling/answers": _get("The answers that are stored, the newest first."),
            "/v1/labelling/export": _get("All answers as columns (CoNLL).", "text/plain"),
        }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "crfield",
            "version": crfield.__version__,
            "description": "Labels of sequences by trained models.",
        },
        "paths": paths,
    }


def _get(summary: str, kind: str = "application/json") -> dict[str, Any]:
    return {"get": {"summary": summary, "responses": {"200": {"description": "ok", "content": {kind: {}}}}}}


def _post(summary: str, fields: dict[str, Any], needed: list[str] | None = None) -> dict[str, Any]:
    schema = {"type": "object", "properties": fields, "additionalProperties": False, "required": needed or []}
    return {
        "post": {
            "summary": summary,
            "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
            "responses": {
                "200": {"description": "ok", "content": {"application/json": {}}},
                "4XX": _ERROR,
            },
        }
    }
