"""Labelling: nothing is lost, nothing overwritten, the model learns, and a restart goes on."""

from __future__ import annotations

import signal
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

import crfield
from crfield.cli.serving import labelled_data, pool_of, score_of
from crfield.errors import FormatError, InputError
from crfield.serve.app import Service
from crfield.serve.gate import Rules
from crfield.serve.labelling.learner import Learner
from crfield.serve.labelling.pool import LEASE, HeldOut, Pool, digest_of
from crfield.serve.labelling.routes import Labelling
from crfield.storage.label_store import AnswerConflict, LabelStore
from tests.cases.command_line import run, works
from tests.serve.conftest import client_of, shelf_of
from tests.serve.served_models import ask, real_server

Made = dict[str, Any]


class Desk:
    """A service with labelling, and the parts of it."""

    def __init__(self, made: Made, store: Path, *, train: bool = False) -> None:
        shelf = shelf_of(made["folder"], "columns")
        place = shelf.first
        model, path = place.served.model, place.path
        X = pool_of(place.served, str(made["folder"] / "pool.txt"))
        dev, gold = labelled_data(model, path, str(made["folder"] / "dev.txt"))
        self.store = LabelStore(store, digest=digest_of(X))
        self.pool = Pool(X, place, self.store)
        self.learner = Learner(
            self.pool, held_out=HeldOut(dev, gold, *score_of(gold)), training=(dev, gold) if train else None
        )
        service = Service(shelf, Rules())
        Labelling(service, self.pool, self.learner).join()
        self.client = client_of(service)

    def post(self, path: str, **asked: Any) -> Any:
        answer = self.client.post(f"/v1/labelling/{path}", json=asked)
        return answer.status_code, answer.json()

    def __enter__(self) -> Desk:
        self.client.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.client.__exit__(None, None, None)


def test_the_most_doubtful_comes_first_and_is_leased(made: Made, tmp_path: Path) -> None:
    with Desk(made, tmp_path / "labels.sqlite") as desk:
        X = desk.pool.X
        order = crfield.rank_for_labelling(made["models"]["columns"], X).numbers.tolist()
        first = desk.post("next", person="ann")[1]["item"]
        second = desk.post("next", person="bob")[1]["item"]
        assert [first["sequence"], second["sequence"]] == order[:2]
        assert desk.post("next", person="ann")[1]["item"]["sequence"] == order[0]  # a reload shows the same
        assert len(first["steps"][0]) == 2  # the columns that the model reads, and no label
        assert desk.post("open", person="bob", sequence=order[0])[0] == 409
        assert desk.post("skip", person="ann", sequence=order[0])[0] == 200
        assert desk.post("next", person="ann")[1]["item"]["sequence"] == order[2]
        assert desk.post("open", person="bob", sequence=order[0])[0] == 200


def test_an_answer_never_overwrites_another(made: Made, tmp_path: Path) -> None:
    with Desk(made, tmp_path / "labels.sqlite") as desk:
        clock = [0.0]
        desk.pool.clock = lambda: clock[0]
        item = desk.post("next", person="ann")[1]["item"]
        number, labels = item["sequence"], item["labels"]
        assert desk.post("answer", person="bob", sequence=number, version=0, labels=labels)[0] == 409  # leased
        clock[0] += LEASE + 1
        assert desk.post("answer", person="bob", sequence=number, version=0, labels=labels)[0] == 200
        late = [None, *labels[1:]]
        status, told = desk.post("answer", person="ann", sequence=number, version=0, labels=late)
        assert status == 409
        assert told["error"]["there"] == {"version": 1, "person": "bob", "labels": labels}
        again = desk.post("open", person="ann", sequence=number)[1]["item"]
        assert (again["version"], again["answer"]) == (1, labels)
        assert desk.post("answer", person="ann", sequence=number, version=1, labels=late)[1]["version"] == 2
        assert [one.labels for one in desk.store.answers()] == [late]


def test_many_people_at_once_lose_nothing(made: Made, tmp_path: Path) -> None:
    with Desk(made, tmp_path / "labels.sqlite") as desk:
        stored: list[tuple[int, str]] = []

        def label(person: str) -> None:
            while (item := desk.post("next", person=person)[1]["item"]) is not None:
                status, told = desk.post(
                    "answer", person=person, sequence=item["sequence"], version=0, labels=item["labels"]
                )
                assert status == 200, told
                stored.append((told["sequence"], person))

        threads = [threading.Thread(target=label, args=(f"person {k}",)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        kept = [(one.sequence, one.person) for one in desk.store.answers()]
        assert sorted(kept) == sorted(stored)
        assert len({number for number, _ in kept}) == len(kept) == len(desk.pool.X)


def test_two_answers_to_one_version_at_once(tmp_path: Path) -> None:
    with LabelStore(tmp_path / "labels.sqlite", digest="d") as store:
        outcomes: list[str] = []
        refused: list[str] = []

        def say(person: str) -> None:
            try:
                store.answer(0, 0, person, ["A"], [["x"]])
                outcomes.append(person)
            except AnswerConflict:
                refused.append(person)

        threads = [threading.Thread(target=say, args=(f"p{k}",)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert outcomes == [store.answers()[0].person]
        assert len(refused) == 7


@pytest.mark.parametrize("train", [False, True])
def test_the_model_learns_and_is_swapped_in(made: Made, tmp_path: Path, train: bool) -> None:
    desk = Desk(made, tmp_path / "labels.sqlite", train=train)
    label = desk.pool.labels[0]
    number = desk.pool.order[0]
    before = desk.pool.place.served.model.predict([desk.pool.X[number]])[0].tolist()
    wrong = next(one for one in desk.pool.labels if one != before[0])
    for _ in range(4):
        answer = desk.pool.store.newest(number)
        labels = [wrong, *[None] * (len(before) - 1)]
        desk.pool.answer("ann", {"sequence": number, "version": answer.version if answer else 0, "labels": labels})
    desk.learner.learn()
    served = desk.pool.place.served
    x = desk.pool.X[number]
    known = crfield.load(made["folder"] / "columns.crfield").predict_proba([x])[0][0]
    learnt = served.model.predict_proba([x])[0][0]
    at = served.labels.index(wrong)
    assert served.version == 2
    assert learnt[at] > known[at]  # more probable than before; open steps were no lesson
    assert [count for count, _ in desk.store.scores()] == [0, 1]
    assert number not in desk.pool.order
    assert label in served.columns
    desk.learner.learn()
    assert desk.pool.place.served.version == 2  # nothing new, nothing learnt
    desk.store.close()


def test_a_restart_goes_on_from_the_store(made: Made, tmp_path: Path) -> None:
    store = tmp_path / "labels.sqlite"
    with Desk(made, store) as desk:
        items = []
        for _ in range(3):
            item = desk.post("next", person="ann")[1]["item"]
            desk.post("answer", person="ann", sequence=item["sequence"], version=0, labels=item["labels"])
            items.append(item["sequence"])
        with pytest.raises(InputError, match="in use by another process"):
            LabelStore(store)
    with Desk(made, store) as desk:
        about = desk.client.get("/v1/labelling").json()
        assert (about["answered"], about["people"]) == (3, {"ann": 3})
        listed = desk.client.get("/v1/labelling/answers").json()["answers"]
        assert [one["sequence"] for one in listed] == items[::-1]
        assert desk.post("next", person="ann")[1]["item"]["sequence"] not in items


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"labels": ["NOPE"]}, "labels must be a list of"),
        ({"labels": "all"}, "labels must be a list of"),
        ({"sequence": 10**6}, "expected the number of a sequence"),
        ({"sequence": True}, "expected the number of a sequence"),
        ({"version": -1}, "version must be a whole number"),
        ({"person": ""}, "person must be a text of 1 to 64"),
        ({"person": "x" * 65}, "person must be a text of 1 to 64"),
        ({"extra": 1}, "expected the fields"),
    ],
)
def test_answers_are_checked(made: Made, tmp_path: Path, asked: dict[str, Any], words: str) -> None:
    with Desk(made, tmp_path / "labels.sqlite") as desk:
        item = desk.post("next", person="ann")[1]["item"]
        good = {"person": "ann", "sequence": item["sequence"], "version": 0, "labels": item["labels"]}
        status, told = desk.post("answer", **good | asked)
        assert status == 400
        assert words in told["error"]["message"]
        unknown = ["NOPE", *item["labels"][1:]]
        assert desk.post("answer", **good | {"labels": unknown})[0] == 422
        assert desk.post("answer", **good | {"labels": [None] * len(unknown)})[0] == 400
        assert desk.store.answers() == []


def test_export_is_columns_with_open_steps_marked(made: Made, tmp_path: Path) -> None:
    store, out = tmp_path / "labels.sqlite", tmp_path / "out.conll"
    with Desk(made, store) as desk:
        item = desk.post("next", person="ann")[1]["item"]
        labels = [None, *item["labels"][1:]]
        desk.post("answer", person="ann", sequence=item["sequence"], version=0, labels=labels)
        text = desk.client.get("/v1/labelling/export").text
    works("labels", store, "-o", out)
    assert out.read_text() == text
    X, y = crfield.read_columns(out).split_column(-1)
    assert X[0] == [tuple(row) for row in item["steps"]]
    assert y[0].tolist() == ["_", *labels[1:]]
    assert works("labels", store, "--complete").stdout == ""
    assert "there is no store" in run("labels", tmp_path / "nothing").output


def test_a_store_is_of_its_data_and_nothing_else(tmp_path: Path) -> None:
    LabelStore(tmp_path / "a.sqlite", digest="one").close()
    with pytest.raises(InputError, match="labels for other data"):
        LabelStore(tmp_path / "a.sqlite", digest="two")
    (tmp_path / "b.sqlite").write_bytes(b"not a database at all, but long enough to be looked at" * 50)
    with pytest.raises(FormatError, match="no store of labels"):
        LabelStore(tmp_path / "b.sqlite")
    sqlite3.connect(tmp_path / "c.sqlite").execute("CREATE TABLE answers (a)").connection.close()
    with pytest.raises(FormatError, match="no store of labels"):
        LabelStore(tmp_path / "c.sqlite", digest="one")
    with LabelStore(tmp_path / "a.sqlite") as store:
        store._connection.execute("INSERT INTO answers VALUES (0, 1, 'x', 0, 'nonsense', '[]', NULL)")
        with pytest.raises(FormatError, match="damaged"):
            store.answers()


def test_kill_minus_nine_after_the_answer_loses_nothing(made: Made, tmp_path: Path) -> None:
    store, folder = tmp_path / "labels.sqlite", made["folder"]
    words = (folder / "columns.crfield", "--label", folder / "pool.txt", "--store", store)
    kept: dict[int, list[Any]] = {}
    for turn in range(2):
        with real_server(*words) as (process, port):
            _, about = ask(port, "GET", "/v1/labelling")
            assert about["answered"] == len(kept)
            for _ in range(turn + 1):
                item = ask(port, "POST", "/v1/labelling/next", {"person": "ann"})[1]["item"]
                answer = {"person": "ann", "sequence": item["sequence"], "version": 0, "labels": item["labels"]}
                assert ask(port, "POST", "/v1/labelling/answer", answer)[0] == 200
                kept[item["sequence"]] = item["labels"]
            process.send_signal(signal.SIGKILL)
            process.wait(30)
    with LabelStore(store) as found:
        assert {one.sequence: one.labels for one in found.answers()} == kept


def test_options_go_together(made: Made, tmp_path: Path) -> None:
    model = made["folder"] / "columns.crfield"
    assert "name both" in run("serve", model, "--label", made["folder"] / "pool.txt").output
    assert "are about labelling" in run("serve", model, "--dev", made["folder"] / "dev.txt").output
