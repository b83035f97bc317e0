"""A model file that is replaced: the new one takes over between requests, and a damaged one never does."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import crfield
from crfield.errors import InputError
from crfield.serve.app import Service
from crfield.serve.gate import Rules
from tests.serve.conftest import client_of, shelf_of

X = [[["a"], ["b"]]]


def saved(path: Path, first: str, second: str) -> None:
    crfield.ChainCRF(template="U0:%x[0,0]\nB").fit([[("a",), ("b",)]], [[first, second]]).save(path)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    saved(tmp_path / "tags.crfield", "old", "OLD")
    return tmp_path / "tags.crfield"


def test_the_new_file_answers_and_a_damaged_one_does_not(place: Path) -> None:
    shelf = shelf_of(place.parent, "tags")
    with client_of(Service(shelf, Rules())) as client:

        def labels() -> tuple[int, list[str]]:
            told = client.post("/v1/predict", json={"sequence": X[0]}).json()
            return told["version"], told["labels"]

        assert labels() == (1, ["old", "OLD"])
        assert shelf.refresh() == []
        saved(place, "new", "NEW")
        assert "version 2" in shelf.refresh()[0]
        assert labels() == (2, ["new", "NEW"])
        whole = place.read_bytes()
        place.write_bytes(whole[: len(whole) // 2])
        assert "the old model goes on" in shelf.refresh()[0]
        assert labels() == (2, ["new", "NEW"])
        about = client.get("/v1/models").json()["models"][0]
        assert about["failed"]
        place.unlink()
        assert shelf.refresh() == []
        assert labels() == (2, ["new", "NEW"])
        place.write_bytes(whole)
        assert "version 3" in shelf.refresh()[0]
        assert client.get("/v1/models").json()["models"][0]["failed"] is None


def test_no_request_is_dropped_while_models_change(place: Path) -> None:
    shelf = shelf_of(place.parent, "tags")
    seen: list[Any] = []
    with client_of(Service(shelf, Rules())) as client:

        def keep_asking() -> None:
            for _ in range(150):
                answer = client.post("/v1/predict", json={"sequences": X * 200})
                seen.append((answer.status_code, {tuple(own) for own in answer.json()["labels"]}))

        threads = [threading.Thread(target=keep_asking) for _ in range(2)]
        for thread in threads:
            thread.start()
        for turn in range(10):
            saved(place, f"a{turn}", f"b{turn}")
            shelf.refresh()
        for thread in threads:
            thread.join()
    assert len(seen) == 300
    assert {status for status, _ in seen} == {200}
    assert {len(kinds) for _, kinds in seen} == {1}  # never two models in one answer
    assert all(a.replace("a", "b") == b or (a, b) == ("old", "OLD") for _, kinds in seen for a, b in kinds)


def test_only_models_of_steps_are_served(tmp_path: Path) -> None:
    crfield.MaxentClassifier().fit([{"a": 1}, {"b": 1}], ["x", "y"]).save(tmp_path / "rows.crfield")
    with pytest.raises(InputError, match="MaxentClassifier, which does not label the steps"):
        shelf_of(tmp_path, "rows")


def test_two_files_of_one_name_are_refused(place: Path) -> None:
    shelf = shelf_of(place.parent, "tags")
    shutil.copy(place, place.with_name("other.crfield"))
    with pytest.raises(InputError, match="two models are called 'tags'"):
        shelf.put("tags", str(place.with_name("other.crfield")))
