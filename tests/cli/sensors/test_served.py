"""Models of tables behind the server: texts answered as files are, replays of tracks, labelling, what is refused."""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("httpx2")

from starlette.testclient import TestClient

import crfield
from crfield.cli.serving import manner_of
from crfield.serve.app import Service
from crfield.serve.gate import Rules
from crfield.serve.models import Shelf
from crfield.storage.label_store import LabelStore
from tests.cases.command_line import run, works

MODELS = ("days", "people", "tracks")
TABLES = {"days": "days.csv", "people": "people.csv", "tracks": "games.csv"}


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    shelf = Shelf(manner_of)
    for name in MODELS:
        shelf.put(name, str(folder / f"{name}.crfield"))
    app = Service(shelf, Rules(most_bytes=1_000_000)).app()
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as found:
        yield found


def text_of(folder: Path, model: str) -> str:
    return (folder / TABLES[model]).read_text()


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def asked(client: TestClient, **words: Any) -> Any:
    answer = client.post("/v1/predict", json=words)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_table_is_answered_as_the_file_is(client: TestClient, folder: Path) -> None:
    told = asked(client, model="days", text=text_of(folder, "days"), echo=True)
    tagged = rows_of(works("tag", folder / "days.csv", "-m", folder / "days.crfield").stdout)
    assert [*chain.from_iterable(told["labels"])] == [row["predicted"] for row in tagged]
    assert [*chain.from_iterable(told["gold"])] == [row["label"] for row in tagged]
    assert told["names"] == ["mon", "tue", "wed", "thu"]
    assert told["per_step"] == 1.0


def test_windows_of_samples_say_how_long_they_are(client: TestClient, folder: Path) -> None:
    told = asked(client, model="people", text=text_of(folder, "people"), echo=True)
    assert [len(own) for own in told["labels"]] == [10, 10]
    assert told["per_step"] == 20.0


def test_without_labels_there_are_none_to_compare(client: TestClient, folder: Path) -> None:
    text = "\n".join(line.rpartition(",")[0] for line in text_of(folder, "days").splitlines())
    bare, told = (asked(client, model="days", text=own, echo=True) for own in (text, text_of(folder, "days")))
    assert bare["labels"] == told["labels"]
    assert bare.get("gold") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [("day,speed,turn", "expected a table with a header and rows"), ("day,speed\nmon,1\n", "turn")],
)
def test_tables_that_cannot_be_read(client: TestClient, text: str, words: str) -> None:
    answer = client.post("/v1/predict", json={"model": "days", "text": text})
    assert answer.status_code == 422
    assert words in answer.json()["error"]["message"]


def test_tracks_are_a_game_to_watch(client: TestClient, folder: Path) -> None:
    lines = text_of(folder, "tracks").splitlines()
    first = rows_of(text_of(folder, "tracks"))[0]["game"]
    game = [lines[0], *(line for line in lines[1:] if line.split(",")[0] == first)]
    pages = []
    for _ in range(9):
        made = client.post("/v1/replay", json={"model": "tracks", "text": "\n".join(game) + "\n"})
        assert made.status_code == 200, made.text
        pages.append(made.json()["page"])
    assert len(set(pages)) == 9
    assert client.get(pages[0]).status_code == 404  # eight are kept
    shown = client.get(pages[-1])
    assert shown.status_code == 200
    policy = shown.headers["content-security-policy"]
    assert policy.count("'sha256-") == len(re.findall(r"<(?:script|style)>", shown.text))
    assert "default-src 'none'" in policy


def test_only_tracks_are_replayed(client: TestClient, folder: Path) -> None:
    answer = client.post("/v1/replay", json={"model": "days", "text": text_of(folder, "days")})
    assert answer.status_code == 422
    assert "days does not read tracks" in answer.json()["error"]["message"]


# ---------------------------------------------------------------------------------------------------- the verb


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> list[Service]:
    """Services that the verb would have run."""
    made: list[Service] = []

    def ran(service: Service, at: Any, ready: Any) -> None:
        at.close()
        ready("http://127.0.0.1:1/")
        made.append(service)

    monkeypatch.setattr("crfield.serve.server.run", ran)
    return made


def test_the_verb_serves_what_is_named(services: list[Service], folder: Path) -> None:
    told = works("serve", *(folder / f"{name}.crfield" for name in MODELS), "--port", 0)
    assert "serving days, people, tracks at http://127.0.0.1:1/ " in told.stderr
    assert list(services[0].shelf.places) == list(MODELS)
    quiet = works("serve", folder / "days.crfield", "--port", 0, "-q")
    assert "serving" not in quiet.stderr


def test_a_model_learns_from_a_labelled_table(
    services: list[Service], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, learnt, lessons = folder / "days.csv", tmp_path / "learnt.crfield", []
    taught = crfield.ChainCRF.partial_fit

    def noted(self: crfield.ChainCRF, X: Any, y: Any, **options: Any) -> Any:
        lessons.append((len(X), options["n_sequences"]))
        return taught(self, X, y, **options)

    monkeypatch.setattr(crfield.ChainCRF, "partial_fit", noted)
    told = works(
        *("serve", folder / "days.crfield", "--label", table, "--store", tmp_path / "store.sqlite"),
        *("--dev", table, "--train", table, "--learnt", learnt, "--port", 0),
    )
    assert "http://127.0.0.1:1/label" in told.stderr
    rows = rows_of(table.read_text())
    X = [np.array([[float(row["speed"]), float(row["turn"])] for row in rows[k : k + 24]]) for k in range(0, 96, 24)]
    y = [[row["label"] for row in rows[k : k + 24]] for k in range(0, 96, 24)]
    with TestClient(services[0].app(), base_url="http://127.0.0.1") as client:
        item = client.post("/v1/labelling/next", json={"person": "ann"}).json()["item"]
        answer = {"person": "ann", "sequence": item["sequence"], "version": 0, "labels": y[item["sequence"]]}
        assert client.post("/v1/labelling/answer", json=answer).status_code == 200
        end = time.monotonic() + 60
        while (about := client.get("/v1/labelling").json())["taught"] == 0 and time.monotonic() < end:
            time.sleep(0.01)
    assert (about["sequences"], about["answered"], about["failed"]) == (4, 1, None)
    assert about["score_name"] == "share of right steps"
    assert lessons == [(5, 5)]  # the answer, and the four days of --train
    wanted = [crfield.load(folder / "days.crfield").score(X, y), crfield.load(learnt).score(X, y)]
    with LabelStore(tmp_path / "store.sqlite") as store:
        scores = store.scores()
    assert [count for count, _ in scores] == [0, 1]
    assert [score for _, score in scores] == pytest.approx(wanted)


@pytest.mark.parametrize(("model", "words"), [("people", "labels windows of samples"), ("tracks", "labels tracks")])
def test_what_is_no_step_a_row_is_not_labelled(
    services: list[Service], folder: Path, tmp_path: Path, model: str, words: str
) -> None:
    told = run(
        *("serve", folder / f"{model}.crfield", "--label", folder / TABLES[model]),
        *("--store", tmp_path / "store.sqlite", "--port", 0),
    )
    assert told.exit_code == 1
    assert words in told.stderr
    assert not services
