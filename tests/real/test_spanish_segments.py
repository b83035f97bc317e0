"""Spanish names by segments: the experiment in its quick form, and names in and out of a small model."""

from __future__ import annotations

from pathlib import Path

from crfield import SemiMarkovCRF
from crfield.metrics import span_f1, spans
from studies.catalogue import study_named
from studies.text.spanish_segments import CHAIN, LENGTHS, TEXTS, read_part
from tests.real.conftest import folder


def test_the_quick_experiment(data: Path) -> None:
    folder(data, "conll2002")
    found = study_named("spanish-segments")(quick=True, data=str(data))
    assert [row[0] for row in found.rows] == [CHAIN, LENGTHS, TEXTS]
    assert found.verdict == "all 1 claims hold"
    best = max((LENGTHS, TEXTS), key=lambda name: found[name, "F1 testa"])
    assert found[best, "F1 testb"] > 0.3
    assert {row[0] for row in found.rows if row[5] is None} == {LENGTHS, TEXTS} - {best}
    assert found[TEXTS, "weights"] > found[LENGTHS, "weights"] > found[CHAIN, "weights"]


def test_long_names_are_counted(data: Path) -> None:
    train = read_part(str(folder(data, "conll2002") / "esp.train.gz"), 200)
    longer = sum(stop - start > 4 for tags in train.y for start, stop, _ in spans(tags))
    assert longer > 0
    model = SemiMarkovCRF(max_length=4, scheme="iob2", segment_text=["word"], tol=1e-2).fit(train.X, train.y)
    assert model.n_split_ == longer
    assert span_f1(train.y, model.predict(train.X)) > 0.9
