"""Asking a model out of a file needs numpy: not scikit-learn, not the libraries of the terminal or of plots.

All models of one process are loaded and asked one after the other, so that the first that brings one of these along
is named. Those that must are listed with the reason.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.storage.foreign.test_crfpp_and_wapiti import CRFPP, OBSERVATIONS, PATTERNS, WEIGHTS, wapiti
from tests.stored.test_stored import FOLDERS, STORED

ROWS = "rows of a table are checked by scikit-learn's validate_data, whose words users of classifiers know"
HEAVY = {
    "pipeline": "it is a class derived from scikit-learn's Pipeline",
    "classifier-hmm": "it holds a classifier of scikit-learn",
    "classifier-hmm-calibrated": "it holds a classifier of scikit-learn",
    "best-chain": "the model that was best holds a classifier of single steps, which reads rows",
    "best-chain-sequences": "the models that were best hold classifiers of single steps, which read rows",
    "discriminative-field": "it holds a classifier of scikit-learn",
    "markov-field": "it holds mixtures of scikit-learn",
    "dense": "its columns of single pixels are scored by a classifier of scikit-learn",
    "maxent": ROWS,
    "kernel-logistic": ROWS,
    "logit-boost": ROWS,
    "logit-boost-evidence": ROWS,
    "logit-boost-potentials": ROWS,
    "incomplete-boost": ROWS,
}
UNWANTED = {"sklearn", "joblib", "typer", "rich", "click", "matplotlib", "pandas"}
ASK = f"""
import pickle, sys, warnings
warnings.simplefilter("ignore")
import crfield
for name, path, X, given, ask in pickle.load(open(sys.argv[1], "rb")):
    model = crfield.load(path)
    getattr(model, ask)(X, **given)
    if hasattr(model, "tagger") and ask == "predict":
        model.tagger().tag(X[0])
    came = {UNWANTED!r} & {{module.split(".")[0] for module in sys.modules}}
    assert not came, f"{{name}} brought {{came}} along"
print(len([module for module in sys.modules if module.split(".")[0] == "scipy"]))
"""


def asked(folder: Path, cases: list[tuple[object, ...]]) -> str:
    path = folder / "cases.pickle"
    path.write_bytes(pickle.dumps(cases))
    done = subprocess.run([sys.executable, "-c", ASK, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_stored_models_are_asked_without_scikit_learn(tmp_path: Path) -> None:
    cases = []
    for folder, case in STORED:
        if case.name not in HEAVY and not case.load:  # functions are code of the user's, which these tests have here
            X, _ = case.data(4, 1)
            ask = "predict" if "predict" in case.asks else case.asks[0]
            cases.append((case.name, str(folder / f"{case.name}.crfield"), X, dict(case.given(X)), ask))
    assert len(cases) > 40
    asked(tmp_path, cases)


def test_every_exception_is_one_of_the_stored_models() -> None:
    assert {case.name for _, case in STORED} > HEAVY.keys()


def test_models_of_other_tools_are_asked_without_scikit_learn(tmp_path: Path) -> None:
    (tmp_path / "crfpp.txt").write_text(CRFPP)
    (tmp_path / "wapiti.mdl").write_bytes(wapiti(PATTERNS, OBSERVATIONS, WEIGHTS))
    rows = [[("a", "x"), ("b", "y")]]
    cases = [(name, str(tmp_path / name), rows, {}, "predict") for name in ("crfpp.txt", "wapiti.mdl")]
    cases += [("crfsuite", str(FOLDERS[-1] / "chain.crfsuite"), [[["word=1"], {"word": "2"}]], {}, "predict")]
    asked(tmp_path, cases)


@pytest.mark.parametrize("form", ["strings", "dicts", "template", "text"])
def test_chains_of_text_need_no_scipy_either(form: str, tmp_path: Path) -> None:
    folder, case = next((folder, case) for folder, case in STORED if case.name == f"chain-{form}")
    assert asked(tmp_path, [(form, str(folder / f"{case.name}.crfield"), case.data(4, 1)[0], {}, "predict")]) == "0\n"
