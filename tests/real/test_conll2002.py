"""Spanish names: text beyond ASCII from file to spans."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.corpora import WINDOWS, template_of

import crfield
from crfield.metrics import span_f1
from tests.real.conftest import folder


@pytest.mark.parametrize(("part", "sentences"), [("train", 8_323), ("testa", 1_915), ("testb", 1_517)])
def test_sizes(data: Path, part: str, sentences: int) -> None:
    X, y = crfield.read_columns(folder(data, "conll2002") / f"esp.{part}.gz").split_column(-1)
    assert (len(X), X.width) == (sentences, 2)
    assert len({tag for tags in y for tag in tags}) == 9


def test_a_part_trains_saves_and_finds_names(data: Path, tmp_path: Path) -> None:
    parts = [
        crfield.read_columns(folder(data, "conll2002") / f"esp.{part}.gz").split_column(-1)
        for part in ("train", "testa")
    ]
    (X, y), (X_test, y_test) = parts
    model = crfield.ChainCRF(template=template_of(WINDOWS), n_jobs=2).fit(X[:3000], y[:3000])
    assert model.converged_
    predicted = model.predict(X_test)
    assert span_f1(y_test, predicted) >= 0.54
    model.save(tmp_path / "names.crf")
    again = crfield.load(tmp_path / "names.crf").predict(X_test)
    assert [tags.tolist() for tags in again] == [tags.tolist() for tags in predicted]
    names = {name for name, *_ in model.top_features(200)}
    assert any(not str(name).isascii() for name in names)
