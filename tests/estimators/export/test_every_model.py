"""Every kind of scores: a stream says what predict says, and programs in C and Python say what the stream says."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crfield import FactorialCRF, VirtualEvidenceBoosting, make_order_chains
from tests.cases.step_models import FORMS, StepModel, answers, fitted, series

COMPILER = next((name for name in ("gcc", "cc", "clang") if shutil.which(name)), None)
FLAGS = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
MAX_LAG = 20
STEPS = 10_000  # of the long run

every = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)

DRIVER = """
#include <stdio.h>
@includes@
#define RUN(NAME) \\
  static int run_##NAME(void) { \\
    static NAME##_stream s; \\
    double x[NAME##_COLUMNS]; \\
    int more = 1, head[4] = {(int)sizeof s, 0, 0, 0}; \\
    NAME##_begin(&s); \\
    while (more) { \\
      more = fread(x, sizeof x, 1, stdin) == 1; \\
      head[1] = more ? NAME##_push(&s, x) : NAME##_finish(&s); \\
      head[2] = s.n_committed; \\
      head[3] = s.n_forced; \\
      fwrite(head, sizeof head, 1, stdout); \\
      fwrite(s.probabilities, sizeof s.probabilities, 1, stdout); \\
      fwrite(s.committed, sizeof(int), (size_t)s.n_committed, stdout); \\
    } \\
    return 0; \\
  }
@runs@
int main(int count, char **words) {
  static int (*const all[])(void) = {@names@};
  return count > 1 ? all[words[1][0] - 'A']() : 1;
}
"""

COUNTED = """
#include <math.h>
#include <stdio.h>
#include <string.h>
static long long done;
struct Counted {
  double v;
  Counted() = default;
  constexpr Counted(double value) : v(value) {}
  explicit operator int() const { return (int)v; }
};
#define OPERATOR(op) \\
  static inline Counted operator op(Counted a, Counted b) { done++; return a.v op b.v; } \\
  static inline Counted &operator op##=(Counted &a, Counted b) { done++; a.v op##= b.v; return a; }
#define COMPARE(op) static inline bool operator op(Counted a, Counted b) { done++; return a.v op b.v; }
OPERATOR(+) OPERATOR(-) OPERATOR(*) OPERATOR(/)
COMPARE(<) COMPARE(>) COMPARE(<=) COMPARE(>=) COMPARE(==) COMPARE(!=)
#define FUNCTION(kind, f) static inline kind f(Counted a) { done++; return f(a.v); }
FUNCTION(Counted, exp) FUNCTION(Counted, log) FUNCTION(Counted, sqrt) FUNCTION(Counted, floor)
FUNCTION(bool, isnan) FUNCTION(bool, isinf) FUNCTION(bool, isfinite)
static inline Counted operator-(Counted a) { return -a.v; }
#define double Counted
@includes@
#undef double
#define RUN(NAME) { \\
  static NAME##_stream s; \\
  Counted x[NAME##_COLUMNS]; \\
  long long most = 0; \\
  NAME##_begin(&s); \\
  for (int t = 0; t < 200; t++) { \\
    for (int d = 0; d < NAME##_COLUMNS; d++) x[d] = t % 4 == 3 && d == 1 ? NAN : (double)((t * 7 + d * 5) % 6); \\
    done = 0; \\
    if (NAME##_push(&s, x) >= 0 && done > most) most = done; \\
  } \\
  printf("%lld\\n", most); \\
}
int main() { @runs@ }
"""


def rows_of(form: StepModel, *, seed: int = 1) -> np.ndarray:
    """A sequence to be pushed, with cells missing where the model knows what to do."""
    x = series(seed, 1, whole_numbers=form.whole_numbers)[0][0].copy()
    if form.missing:
        x[np.random.default_rng(seed).random(x.shape) < 0.15] = np.nan
    return x


def streamed(form: StepModel, x: np.ndarray, *, max_lag: int = MAX_LAG) -> list[Any]:
    """Label, how many were forced, probabilities and committed labels of each step and of the end, as codes."""
    model = fitted(form)
    labels = model._stream_labels().labels
    stream, told = model.stream(viterbi=True, max_lag=max_lag), []
    for row in x:
        now = stream.push(form.step(row))
        said = [labels.index(label) for label in now.committed]
        told.append((-1 if now.label is None else labels.index(now.label), now.forced, now.probabilities, said))
    end = stream.finish()
    last = end.smoothed[-1]
    told.append((int(last.argmax()), 0, last, [labels.index(label) for label in end.committed]))
    return told


@every
def test_a_stream_says_what_predict_says(form: StepModel) -> None:
    model, x = fitted(form), series(1, 1, whole_numbers=form.whole_numbers)[0][0]
    told = streamed(form, x, max_lag=1000)
    shares, path = answers(model, form.whole(x))
    labels = model._stream_labels().labels
    if isinstance(model, FactorialCRF):
        joint = told[-1][2].reshape(model._coder.sizes)
        for axis, layer in enumerate(model.layers_):
            np.testing.assert_allclose(joint.sum(axis=1 - axis), shares[layer][-1], rtol=0, atol=1e-10)
    else:
        np.testing.assert_allclose(told[-1][2], shares, rtol=0, atol=1e-10)
    assert [labels[code] for row in told for code in row[3]] == path
    assert sum(row[1] for row in told) == 0
    # and beforehand what the part so far says, where it has no score of an end
    first = np.stack([row[2] for row in told[:4]])
    assert (abs(first.sum(axis=1) - 1) < 1e-12).all()


@every
def test_the_module_says_what_the_stream_says(form: StepModel, tmp_path: Path) -> None:
    model, x = fitted(form), rows_of(form)
    model.export(tmp_path / "robot.py", max_lag=MAX_LAG)
    made: dict[str, Any] = {}
    exec((tmp_path / "robot.py").read_text(), made)
    stream, found = made["Stream"](), []
    for row in [*x.tolist(), None]:
        now = stream.finish() if row is None else stream.push(row)
        code = -1 if now["label"] is None else made["LABELS"].index(now["label"])
        said = [made["LABELS"].index(label) for label in now["committed"]]
        found.append((code, now["forced"], now["probabilities"], said))
    same(found, streamed(form, x))
    with pytest.raises(ValueError, match="finite numbers"):
        stream.push([np.inf] * len(made["COLUMNS"]))


def same(found: list[Any], wanted: list[Any]) -> None:
    assert len(found) == len(wanted)
    for ours, (code, forced, shares, committed) in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours[2], shares, rtol=0, atol=1e-12)
        assert (ours[0], ours[1], ours[3]) == (code, forced, committed)


@pytest.mark.parametrize("name", ["boosted", "boosted_two"])
def test_the_linear_form_of_a_boosted_model_is_the_same_model(name: str) -> None:
    """`to_crf`, a weight for each leaf: labels, probabilities, and what is said step by step."""
    form = next(form for form in FORMS if form.name == name)
    model, X = fitted(form), series(1, 2, whole_numbers=form.whole_numbers)[0]
    twin, leaves = model.to_crf(), model.transform(X)
    for k in range(2):
        assert twin.predict(leaves)[k].tolist() == model.predict(X)[k].tolist()
        np.testing.assert_allclose(twin.predict_proba(leaves)[k], model.predict_proba(X)[k], rtol=0, atol=1e-10)
    ours, theirs = twin.stream(), model.stream()
    for columns, row in zip(leaves[0].nodes["node"], X[0], strict=True):
        now = ours.push(columns).probabilities
        np.testing.assert_allclose(now, theirs.push(row).probabilities, rtol=0, atol=1e-10)


@cache
def long_form() -> tuple[StepModel, np.ndarray]:
    """A boosted model of order 2 on ten columns, and 10,000 steps, some cells of which are missing."""
    world = make_order_chains(0.9, 2, n_chains=2, length=300, n_features=10, random_state=1)
    model = VirtualEvidenceBoosting(n_rounds=30, relations=(1, 2)).fit(world.features, world.labels)
    x = np.random.default_rng(0).normal(size=(STEPS, model._step_scorer().n_columns)) * 2
    x[np.random.default_rng(1).random(x.shape) < 0.05] = np.nan
    form = StepModel("long_run", model)
    return form, x


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All headers in one program, compiled as C99; the same text also passes as C++17 and by clang."""
    if COMPILER is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("headers")
    names = [form.name for form in FORMS] + ["long_run"]
    for form in FORMS:
        fitted(form).export(folder / f"{form.name}.h", max_lag=MAX_LAG)
    long_form()[0].model.export(folder / "long_run.h", max_lag=MAX_LAG)
    text = DRIVER.replace("@includes@", "\n".join(f'#include "{name}.h"' for name in names))
    text = text.replace("@runs@", "\n".join(f"RUN({name})" for name in names))
    (folder / "main.c").write_text(text.replace("@names@", ", ".join(f"run_{name}" for name in names)))
    subprocess.run([COMPILER, "-std=c99", "-O1", *FLAGS, "main.c", "-o", "main", "-lm"], cwd=folder, check=True)
    if shutil.which("g++"):
        subprocess.run(["g++", "-x", "c++", "-std=c++17", "-fsyntax-only", *FLAGS, "main.c"], cwd=folder, check=True)
    if shutil.which("clang"):
        subprocess.run(["clang", "-std=c99", "-fsyntax-only", *FLAGS, "main.c"], cwd=folder, check=True)
    return folder


def run(folder: Path, number: int, x: np.ndarray, n_labels: int) -> tuple[int, list[Any]]:
    """The size of the state, and what the program says of each step and of the end."""
    done = subprocess.run(
        [folder / "main", chr(ord("A") + number)], input=x.tobytes(), capture_output=True, check=True
    )
    data, at, told, size = done.stdout, 0, [], 0
    while at < len(data):
        size, code, count, forced = np.frombuffer(data, np.int32, 4, at).tolist()
        shares = np.frombuffer(data, np.float64, n_labels, at + 16)
        said = np.frombuffer(data, np.int32, count, at + 16 + 8 * n_labels).tolist()
        told.append((code, forced, shares, said))
        at += 16 + 8 * n_labels + 4 * count
    return size, told


@pytest.mark.parametrize("number", range(len(FORMS)), ids=[form.name for form in FORMS])
def test_the_header_says_what_the_stream_says(number: int, program: Path) -> None:
    form = FORMS[number]
    x = rows_of(form)
    size, found = run(program, number, x, fitted(form)._stream_labels().n_labels)
    same(found, streamed(form, x))
    stated = re.search(r"State: ([0-9,]+) bytes", (program / f"{form.name}.h").read_text())
    assert stated is not None
    assert int(stated[1].replace(",", "")) == size


def test_ten_thousand_steps_of_a_boosted_model(program: Path) -> None:
    """Labels are the same, committed ones and those of now; probabilities differ by rounding of exp and log alone."""
    form, x = long_form()
    _, found = run(program, len(FORMS), x, 2)
    wanted = streamed_long(form.model, x)
    assert [row[0] for row in found[:-1]] == wanted[0]
    assert [code for row in found for code in row[3]] == wanted[1]
    assert abs(np.stack([row[2] for row in found[:-1]]) - wanted[2]).max() < 1e-12
    assert len(wanted[1]) == STEPS


def streamed_long(model: Any, x: np.ndarray) -> tuple[list[int], list[int], np.ndarray]:
    labels = model._stream_labels().labels
    stream = model.stream(viterbi=True, max_lag=MAX_LAG)
    told = [stream.push(row) for row in x]
    path = [label for now in told for label in now.committed] + list(stream.finish().committed)
    codes = {label: code for code, label in enumerate(labels)}
    shares = np.stack([now.probabilities for now in told])
    return [codes[now.label] for now in told], [codes[label] for label in path], shares


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_a_step_takes_no_more_operations_than_the_header_says(program: Path) -> None:
    """Counted by a class in the place of double; the missing cell makes covariances be factored anew."""
    names = ["boosted_two", "beliefs", "believing_stumps", "edge_trees", "covariances", "mixtures", "symbols"]
    names += ["stumps", "local", "far_layers"]
    text = COUNTED.replace("@includes@", "\n".join(f'#include "{name}.h"' for name in names))
    (program / "counted.cpp").write_text(text.replace("@runs@", " ".join(f"RUN({name})" for name in names)))
    subprocess.run(["g++", "-std=c++17", "-O0", "counted.cpp", "-o", "counted"], cwd=program, check=True)
    done = subprocess.run([program / "counted"], capture_output=True, text=True, check=True).stdout.split()
    for name, count in zip(names, map(int, done), strict=True):
        stated = re.search(r"at most ([0-9,]+) operations", (program / f"{name}.h").read_text())
        assert stated is not None
        most = int(stated[1].replace(",", ""))
        assert 0.5 * most < count <= most, name
