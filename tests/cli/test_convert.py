"""``crfield convert``: from and to other tools' model files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import crfield
from crfield import ChainCRF, write_crfsuite, write_crfsuite_model
from crfield.errors import InputError
from tests.cases.command_line import Files, run, works

X = [[["w=the"], ["w=dog"], ["w=barks"]], [["w=a"], ["w=dog"]]]
Y = [["D", "N", "V"], ["D", "N"]]
CRFPP = "version: 100\ncost-factor: 1\nmaxid: 6\nxsize: 1\n\nA\nB\n\nU:%x[0,0]\nB\n\n0 B\n4 U:a\n\n1\n0\n0\n0\n0\n5\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_crfsuite_model(ChainCRF(intercept=False, boundaries=False).fit(X, Y), tmp_path / "m.crfsuite")
    write_crfsuite(tmp_path / "data.txt", X, Y)
    (tmp_path / "m.txt").write_text(CRFPP)
    return tmp_path


def test_a_model_of_crfsuite_there_and_back(folder: Path) -> None:
    shown = works("convert", folder / "m.crfsuite", folder / "m.crfield").stdout
    assert "written" in shown
    assert "crfield, " in shown
    tagged = works("tag", folder / "data.txt", "-m", folder / "m.crfield").stdout
    assert tagged == works("tag", folder / "data.txt", "-m", folder / "m.crfsuite").stdout
    assert tagged.splitlines()[0] == "D\tD"
    report = works("convert", folder / "m.crfield", folder / "again", "--to", "crfsuite", "--json").stdout
    facts = json.loads(report)
    assert (facts["form"], facts["labels"], facts["bytes"]) == ("crfsuite", 3, (folder / "again").stat().st_size)
    assert (folder / "again").read_bytes() == (folder / "m.crfsuite").read_bytes()


def test_a_model_of_crfpp_tags_columns(folder: Path) -> None:
    works("convert", folder / "m.txt", folder / "m.crfield")
    assert works("tag", "-m", folder / "m.crfield", stdin="a x\nb x\n").stdout == "a x B\nb x A\n"
    assert crfield.load(folder / "m.crfield").template == "U:%x[0,0]\nB"


def test_a_listing_in_json_names_every_weight(folder: Path) -> None:
    works("convert", folder / "m.txt", folder / "m.json")
    listing = json.loads((folder / "m.json").read_text())
    assert listing["features"] == [{"name": "U:a", "label": "B", "weight": 5.0}]
    assert listing["transitions"] == [{"before": "A", "label": "A", "weight": 1.0}]
    assert (listing["labels"], listing["template"]) == (["A", "B"], "U:%x[0,0]\nB")


def test_a_listing_tells_of_rules_and_longer_runs(folder: Path) -> None:
    longer = ChainCRF(order=2, constraints=[("V", "V")], intercept=False, boundaries=False).fit(X, Y)
    longer.save(folder / "longer.crfield")
    works("convert", folder / "longer.crfield", folder / "longer.json")
    listing = json.loads((folder / "longer.json").read_text())
    assert listing["forbidden"] == [["V", "V"]]
    assert [run["labels"] for run in listing["runs"]] == [["D", "N", "V"]]


def test_inspect_says_where_a_model_was_trained(folder: Path) -> None:
    shown = works("inspect", folder / "m.crfsuite").stdout
    assert "trained by CRFsuite" in shown
    assert json.loads(works("inspect", folder / "m.txt", "--json").stdout)["objective"] is None


def test_what_cannot_be_converted_is_an_error_and_leaves_no_file(folder: Path) -> None:
    ChainCRF().fit(X, Y).save(folder / "more.crfield")
    failed = run("convert", folder / "more.crfield", folder / "x.crfsuite")
    assert failed.exit_code == 1
    assert "bias scores, which CRFsuite does not" in failed.stderr
    assert not (folder / "x.crfsuite").exists()
    works("convert", folder / "more.crfield", folder / "x.crfsuite", "--bias", "b", "--start", "s", "--end", "e")
    (folder / "cut").write_bytes((folder / "m.crfsuite").read_bytes()[:-7])
    failed = run("convert", folder / "cut", folder / "y.crfield")
    assert failed.exit_code == 1
    assert "cut: the CRFsuite model is damaged or cut: it should have" in failed.stderr
    assert run("convert", folder / "m.txt", folder / "z", "--to", "wapiti").exit_code == 2


def test_a_model_is_not_converted_onto_itself(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "model.crfield"
    path.write_bytes((files / "attributes.crfield").read_bytes())
    with pytest.raises(InputError, match="is the model that is read"):
        crfield.convert_model(path, f"{tmp_path}/./model.crfield", to="json")
    assert path.read_bytes() == (files / "attributes.crfield").read_bytes()
