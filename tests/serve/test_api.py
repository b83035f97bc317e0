"""The interface: forms of sequences, options, and the library's own words for what cannot be used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from crfield.serve.app import Service
from crfield.serve.gate import Rules
from tests.serve.conftest import client_of, shelf_of

Made = dict[str, Any]


def predict(client: TestClient, **asked: Any) -> Any:
    answer = client.post("/v1/predict", json=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(client: TestClient, path: str = "/v1/predict", **asked: Any) -> tuple[int, dict[str, Any]]:
    answer = client.post(path, json=asked)
    assert 400 <= answer.status_code < 500, answer.text
    return answer.status_code, answer.json()["error"]


@pytest.mark.parametrize("form", ["columns", "records", "numbers"])
def test_one_and_many_get_the_labels_of_predict(client: TestClient, made: Made, form: str) -> None:
    X = made[form][:8]
    gold = [labels.tolist() for labels in made["models"][form].predict(X)]
    sent = [
        x.tolist() if isinstance(x, np.ndarray) else [list(s) if isinstance(s, tuple) else s for s in x] for x in X
    ]
    assert predict(client, model=form, sequences=sent)["labels"] == gold
    assert [predict(client, model=form, sequence=x)["labels"] for x in sent] == gold
    assert predict(client, model=form, sequences=[])["labels"] == []


def test_a_large_request_goes_another_way_and_says_the_same(client: TestClient, made: Made) -> None:
    X = made["columns"]
    gold = [labels.tolist() for labels in made["models"]["columns"].predict(X)]
    sent = [[list(row) for row in x] for x in X]
    assert sum(map(len, X)) > 256 or len(sent) > 0
    assert predict(client, model="columns", sequences=sent * 8)["labels"] == gold * 8


def test_options_are_those_of_the_estimator(client: TestClient, made: Made) -> None:
    model, x = made["models"]["columns"], made["columns"][0]
    known = [None] * len(x)
    known[0] = model.classes_[1]
    told = predict(
        client,
        model="columns",
        sequence=[*map(list, x)],
        marginals=True,
        n_best=3,
        spans="runs",
        doubt=True,
        known=known,
    )
    assert told["classes"] == model.classes_.tolist()
    assert np.allclose(told["probabilities"], model.predict_proba([x], known=[known])[0], atol=1e-6)
    best = model.predict_n_best([x], 3, known=[known])[0]
    assert [one["labels"] for one in told["n_best"]] == [one.labels.tolist() for one in best]
    assert told["labels"] == model.predict([x], known=[known])[0].tolist()
    assert told["labels"][0] == known[0]
    spans = model.predict_spans([x], scheme="runs", known=[known])[0]
    assert [(s["start"], s["stop"], s["label"]) for s in told["spans"]] == [(s.start, s.stop, s.label) for s in spans]
    assert told["doubt"] == pytest.approx(model.entropy([x], known=[known])[0] / len(x))


def test_a_text_is_read_as_the_command_line_reads_files(client: TestClient, made: Made) -> None:
    text = (made["folder"] / "dev.txt").read_text()
    told = predict(client, model="columns", text=text, echo=True, doubt=True)
    X = made["columns"][30:]
    assert told["labels"] == [labels.tolist() for labels in made["models"]["columns"].predict(X)]
    assert told["gold"] == made["gold"][30:]
    assert told["steps"][0][0][:2] == list(X[0][0])
    status, error = refused(client, model="columns", text="one two\nthree\n")
    assert status == 422
    assert "line 2: expected 2 columns" in error["message"]


def test_why_is_the_estimators_explanation(client: TestClient, made: Made) -> None:
    model, x = made["models"]["columns"], made["columns"][0]
    answer = client.post("/v1/explain", json={"model": "columns", "sequence": [*map(list, x)], "step": 1})
    told = model.explain(x, 1)
    found = answer.json()
    assert (found["label"], found["other"]) == (told.label, told.other)
    assert found["margin"] == pytest.approx(told.margin)
    assert [one["feature"] for one in found["contributions"]] == [one.name for one in told.top(40)]
    assert found["flip"]["text"] == str(told.flip)


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ({"sequence": "He runs"}, 400, "sequence must be a list, got a text"),
        ({"sequences": [[["He", "P"]], "x"]}, 400, "a sequence must be a list of steps"),
        ({"sequence": ["He"]}, 422, "reads 2 columns of every token"),
        ({"sequence": [["He"]]}, 422, "column"),
        ({"sequence": [["He", 3]]}, 422, "must be strings, got int in column 1 (sequence 0, step 0)"),
        ({"sequence": [], "sequences": []}, 400, "expected one of sequence, sequences and text"),
        ({}, 400, "expected one of sequence, sequences and text, got none"),
        ({"sequence": [], "n_best": 1000}, 400, "n_best must be a whole number from 0 to 100"),
        ({"sequence": [], "n_best": True}, 400, "n_best must be a whole number"),
        ({"sequence": [], "marginal": True}, 400, "Did you mean 'marginals'?"),
        ({"sequence": [["a", "b"]], "known": ["NOPE"]}, 422, "the model has no label 'NOPE'"),
        ({"sequence": [["a", "b"]], "known": [None, None]}, 400, "expected a list of 1 labels"),
        ({"sequence": [["a", "b"]], "spans": "nonsense"}, 422, "scheme"),
    ],
)
def test_bad_input_is_refused_in_words(client: TestClient, asked: dict[str, Any], status: int, words: str) -> None:
    found, error = refused(client, model="columns", **asked)
    assert (found, words in error["message"]) == (status, True), error


def test_rows_of_numbers_are_checked(client: TestClient) -> None:
    for sequence, where in [
        ([[1, 2, "3"]], "sequence[0][2]"),
        ([[1, 2, 3], [1, 2]], "sequence[1]"),
        ([[1, 2, True]], "sequence[0][2]"),
        ([1, 2], "sequence[0]"),
        ([[10**400, 1, 1]], "sequence"),
    ]:
        status, error = refused(client, model="numbers", sequence=sequence)
        assert (status, error["where"]) == (400, where)
    assert refused(client, model="numbers", sequence=[[1, 2]])[0] == 422
    assert refused(client, model="numbers", sequence=[[None, 1, 2]])[0] == 422


def test_models_are_named_or_not_there(client: TestClient) -> None:
    assert refused(client, sequence=[])[1]["message"].startswith("name the model: columns, records")
    assert refused(client, model="nope", sequence=[])[0] == 404
    listed = {one["name"]: one for one in client.get("/v1/models").json()["models"]}
    assert [listed[name]["form"] for name in ("columns", "records", "numbers")] == ["columns", "records", "numbers"]
    assert "explain" in listed["columns"]["can"]
    assert (listed["columns"]["width"], listed["numbers"]["width"]) == (2, 3)


def test_warnings_of_the_library_are_in_the_answer(made: Made) -> None:
    strange = [{"strange": word} for word in "xyz"]
    with client_of(Service(shelf_of(made["folder"], "records"), Rules())) as client:
        for asked in (
            {"sequence": strange},
            {"sequences": [strange] * 200},
            {"sequence": strange, "marginals": True},
        ):
            assert any("no feature that the model knows" in words for words in predict(client, **asked)["warnings"])
        assert "warnings" not in predict(client, sequence=made["records"][0])


def test_health_counts_and_description(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    client.get("/nowhere/at/all")
    text = client.get("/metrics").text
    assert 'crfield_requests_total{route="/healthz",status="200"}' in text
    assert 'crfield_requests_total{route="other",status="404"}' in text
    assert "nowhere" not in text
    assert 'crfield_model_version{model="columns"} 1' in text
    told = client.get("/openapi.json").json()
    assert told["openapi"].startswith("3.")
    assert {"/v1/predict", "/v1/explain", "/v1/models", "/healthz", "/metrics"} <= set(told["paths"])
    fields = told["paths"]["/v1/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"][
        "properties"
    ]
    for name in fields:  # the description is that of the interface: no field of it is unknown
        assert "expected the fields" not in client.post("/v1/predict", json={name: None}).text
