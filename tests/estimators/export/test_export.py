"""Exported models answer as the model does: the header compiled by a C compiler, the module in a bare interpreter."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crfield import HMM, ChainCRF
from crfield.errors import InputError, NotFittedError
from crfield.estimators.export.export import exported
from crfield.estimators.export.step_scores import DenseSteps

COMPILER = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
AWKWARD = ['a"b', "c\\d", "über", "x\ny"]

DRIVER = """
#include <stdio.h>
#include "{file}"
int main(void) {{
  static {name}_stream s;
  double x[{name}_COLUMNS];
  int more = 1;
  {name}_begin(&s);
  while (more) {{
    char word[32];
    if (scanf("%31s", word) != 1) break;
    int now;
    if (word[0] == 'p') {{
      for (int d = 0; d < {name}_COLUMNS; d++)
        if (scanf("%lf", &x[d]) != 1) return 1;
      now = {name}_push(&s, x);
    }} else
      now = {name}_finish(&s);
    printf("{{\\"code\\": %d, \\"forced\\": %d, \\"p\\": [", now, s.n_forced);
    for (int j = 0; j < {name}_LABELS; j++) printf("%s%.17g", j ? ", " : "", s.probabilities[j]);
    printf("], \\"committed\\": [");
    for (int k = 0; k < s.n_committed; k++) printf("%s%d", k ? ", " : "", s.committed[k]);
    printf("]}}\\n");
  }}
  for (int j = 0; j < {name}_LABELS; j++) fprintf(stderr, "%s%c", {name}_label_names[j], 0);
  return 0;
}}
"""

RUNNER = """
import json, sys
sys.path.insert(0, sys.argv[1])
import {name}
stream = {name}.Stream()
for line in sys.stdin:
    x = json.loads(line)
    now = stream.finish() if x is None else stream.push(x)
    print(json.dumps([{name}.LABELS.index(now["label"]) if now["label"] is not None else -1, now["forced"],
                      now["probabilities"], [{name}.LABELS.index(label) for label in now["committed"]]]))
assert not any(name in sys.modules for name in ("numpy", "crfield", "site"))
"""


def data(labels: list[Any], seed: int) -> tuple[list[np.ndarray], list[list[Any]]]:
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(3):
        states = np.repeat(rng.integers(len(labels), size=15), rng.integers(2, 8, size=15))
        X.append(rng.normal(size=(len(states), 5)) * 3 + states[:, None] * np.arange(5) + 1e4)
        y.append([labels[k] for k in states])
    return X, y


def model_named(name: str) -> Any:
    labels: list[Any] = AWKWARD if name == "edges" else [3, 1, 2]
    X, y = data(labels, 0)
    made: dict[str, Any] = {
        "scaled": ChainCRF(standardize=True, tol=1e-2),
        "edges": ChainCRF(standardize=True, transition_features=[0, 3], tol=1e-2),
        "plain": ChainCRF(boundaries=False, intercept=False, transition_pairs="none", tol=1e-2),
        "hmm": HMM(smoothing=0.0, decode="viterbi"),
    }
    model = made[name].fit(X, y)
    if name == "scaled":  # an end that decides how a sequence ends
        inner = model._fitted
        inner.weights[inner.layout.part["end"]] = [0.0, 0.0, 40.0]
    return model


CASES = [("scaled", 1000), ("edges", 4), ("plain", 0), ("hmm", 3)]
each_case = pytest.mark.parametrize(("case", "max_lag"), CASES, ids=[name for name, _ in CASES])


def wanted(model: Any, sequences: list[np.ndarray], max_lag: int) -> list[tuple[int, int, np.ndarray, list[int]]]:
    """What a stream of the model says, finish included, labels as codes."""
    stream, labels = model.stream(viterbi=True, max_lag=max_lag), model._coder.labels
    told = []
    for x in sequences:
        for row in x:
            now = stream.push(row)
            code = -1 if now.label is None else labels.index(now.label)
            told.append((code, now.forced, now.probabilities, [labels.index(label) for label in now.committed]))
        end = stream.finish()
        last = end.smoothed[-1]
        told.append((int(np.argmax(last)), 0, last, [labels.index(label) for label in end.committed]))
    return told


def same(found: list[Any], model: Any, sequences: list[np.ndarray], max_lag: int) -> None:
    expected = wanted(model, sequences, max_lag)
    assert len(found) == len(expected)
    for ours, (code, forced, shares, committed) in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours[2], shares, rtol=0, atol=1e-9)
        assert (ours[0], ours[1], ours[3]) == (code, forced, committed)
    if max_lag == 1000:
        path = [code for row in found[: len(sequences[0]) + 1] for code in row[3]]
        assert [model._coder.labels[code] for code in path] == model.predict(sequences[:1])[0].tolist()
    else:
        assert sum(row[1] for row in found) > 0  # or nothing was forced and nothing tested


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
@each_case
def test_the_header_answers_as_the_model(case: str, max_lag: int, tmp_path: Path) -> None:
    model, X = model_named(case), data([0, 1, 2], 1)[0]
    model.export(tmp_path / "tag-2.h", max_lag=max_lag)
    (tmp_path / "main.c").write_text(DRIVER.format(file="tag-2.h", name="tag_2"))
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    assert COMPILER is not None
    built = [COMPILER, *flags, "main.c", "-o", "main", "-lm"]
    subprocess.run(built, cwd=tmp_path, check=True, capture_output=True, text=True)
    lines = []
    for x in X:
        lines += ["p " + " ".join(repr(value) for value in row) for row in x.tolist()] + ["f"]
    done = subprocess.run(
        [tmp_path / "main"], input="\n".join(lines), capture_output=True, text=True, check=True, encoding="utf-8"
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    same([(row["code"], row["forced"], row["p"], row["committed"]) for row in told], model, X, max_lag)
    assert done.stderr.split("\0")[:-1] == [str(label) for label in model.classes_.tolist()]


@each_case
def test_the_module_answers_as_the_model(case: str, max_lag: int, tmp_path: Path) -> None:
    model, X = model_named(case), data([0, 1, 2], 1)[0]
    model.export(tmp_path / "robot.py", max_lag=max_lag)
    lines = [json.dumps(row) for x in X for row in [*x.tolist(), None]]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", RUNNER.format(name="robot"), str(tmp_path)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    same([json.loads(line) for line in done.stdout.splitlines()], model, X, max_lag)


def module(steps: DenseSteps, labels: list[Any], **options: Any) -> dict[str, Any]:
    made: dict[str, Any] = {}
    exec(exported(steps, labels, suffix=".py", **{"max_lag": 10, **options}), made)
    return made


def test_large_and_forbidden_scores_in_the_module() -> None:
    rng = np.random.default_rng(0)
    table = np.where(rng.random((3, 3)) < 0.3, -np.inf, rng.normal(size=(3, 3)) * 2000)
    end = np.array([0.0, 1e4, 0.0])
    steps = DenseSteps(rng.normal(size=(2, 3)) * 2000, table, start=np.array([0.0, -np.inf, 0.0]), end=end)
    from crfield.data.labels import LabelCoder
    from crfield.estimators.export.stream import LabelStream

    ours, theirs = (
        module(steps, ["a", "b", "c"])["Stream"](),
        LabelStream(steps, LabelCoder.from_classes(["a", "b", "c"]), viterbi=True, max_lag=10),
    )
    for x in rng.normal(size=(60, 2)):
        now, then = ours.push(x.tolist()), theirs.push(x)
        np.testing.assert_allclose(now["probabilities"], then.probabilities, rtol=0, atol=1e-9)
        assert (now["label"], tuple(now["committed"]), now["forced"]) == (then.label, then.committed, then.forced)
    last, rest = ours.finish(), theirs.finish()
    np.testing.assert_allclose(last["probabilities"], rest.smoothed[-1], rtol=0, atol=1e-9)
    assert tuple(last["committed"]) == rest.committed


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
def test_a_model_without_columns(tmp_path: Path) -> None:
    """Nothing was chosen: the tables are empty, which C has no arrays for."""
    steps = DenseSteps(np.zeros((0, 2)), np.zeros((2, 2)), start=np.array([0.0, -np.inf]))
    assert module(steps, ["a", "b"])["Stream"]().push([])["probabilities"] == [1.0, 0.0]
    text = exported(steps, ["a", "b"], suffix=".h", name="none", max_lag=3)
    assert "-INFINITY" in text
    code = '#include "none.h"\nint main(void) { none_stream s; none_begin(&s); return none_push(&s, 0); }\n'
    (tmp_path / "none.h").write_text(text)
    (tmp_path / "main.c").write_text(code)
    assert COMPILER is not None
    subprocess.run([COMPILER, "-std=c99", "-pedantic", "-Werror", "main.c", "-lm"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "a.out"], check=False).returncode == 0


@pytest.mark.parametrize("kind", ["linear", "gaussian"])
def test_numbers_too_large_for_the_model_are_refused(kind: str, tmp_path: Path) -> None:
    """And the stream stands where it stood."""
    X, y = [np.array([[0.1, 1.0], [0.3, 2.0], [1.2, 1.5], [0.9, 1.0]])], [[0, 0, 1, 1]]
    model: Any = (ChainCRF(l2=1e-3) if kind == "linear" else HMM()).fit(X, y)
    huge = [0.1, 1e308] if kind == "linear" else [0.1, 1e160]
    model.export(tmp_path / "robot.py")
    made: dict[str, Any] = {}
    exec((tmp_path / "robot.py").read_text(), made)
    stream, clean = made["Stream"](), made["Stream"]()
    stream.push([0.1, 1.0]), clean.push([0.1, 1.0])
    with pytest.raises(ValueError, match=r"column 'x\[1\]' is 1e\+(308|160): too large"):
        stream.push(huge)
    assert stream.push([1.2, 1.5]) == clean.push([1.2, 1.5])
    if COMPILER is None:
        return
    model.export(tmp_path / "robot.h")
    code = """#include <stdio.h>
#include "robot.h"
int main(void) {
  double first[] = {0.1, 1.0}, huge[] = {0.1, HUGE_CELL}, last[] = {1.2, 1.5};
  robot_stream s;
  robot_begin(&s);
  robot_push(&s, first);
  printf("%d ", robot_push(&s, huge));
  robot_push(&s, last);
  printf("%.17g", s.probabilities[1]);
  return 0;
}"""
    (tmp_path / "main.c").write_text(code.replace("HUGE_CELL", repr(huge[1])))
    subprocess.run([COMPILER, "-std=c99", "-Werror", "-Wall", "main.c", "-lm"], cwd=tmp_path, check=True)
    told = subprocess.run([tmp_path / "a.out"], capture_output=True, text=True, check=True).stdout.split()
    clean = made["Stream"]()
    clean.push([0.1, 1.0])
    assert told[0] == "-2"
    assert float(told[1]) == pytest.approx(clean.push([1.2, 1.5])["probabilities"][1], abs=1e-12)


def test_labels_are_never_code() -> None:
    class Odd(str):
        def __repr__(self) -> str:
            return "__import__('os').abort()"

    labels: list[Any] = [("a", 1), Odd("odd"), 2.5, True, None, "'''\n"]
    steps = DenseSteps(np.zeros((1, 6)), np.zeros((6, 6)), names=('"""',))
    made = module(steps, labels)
    assert made["LABELS"] == labels
    assert made["COLUMNS"] == ['"""']


def test_the_module_refuses_what_is_no_observation() -> None:
    stream = module(DenseSteps(np.zeros((2, 2)), np.zeros((2, 2))), ["a", "b"])["Stream"]()
    for x in ([1.0], [1.0, float("nan")], [1.0, 2.0, 3.0]):
        with pytest.raises(ValueError, match="2 finite numbers"):
            stream.push(x)
    assert stream.finish()["label"] is None
    assert stream.push([0.0, 0.0])["probabilities"] == [0.5, 0.5]
    for _ in range(3000):
        stream.push([0.0, 0.0])
    assert len(stream.back) <= 11


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    model = model_named("plain")
    for path, word in (("model.txt", "got 'model.txt'"), (3, "got int")):
        with pytest.raises(InputError, match=word):
            model.export(path)
    with pytest.raises(InputError, match="a name in C"):
        model.export(tmp_path / "m.h", name="two words")
    with pytest.raises(InputError, match="max_lag"):
        model.export(tmp_path / "m.h", max_lag=-1)
    with pytest.raises(InputError, match="plain numbers"):
        ChainCRF(tol=1e-2).fit([[["a"], ["b"]]], [["x", "y"]]).export(tmp_path / "m.py")
    with pytest.raises(NotFittedError):
        ChainCRF().export(tmp_path / "m.py")
    assert not list(tmp_path.iterdir())
