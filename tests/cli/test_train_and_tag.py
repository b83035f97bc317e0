"""The command line from data to answers: train, tag, evaluate, inspect, for both file formats."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import crfield
from crfield.metrics import span_report, token_accuracy
from tests.cases.command_line import QUICK, Files, run, works

FORMATS = pytest.mark.parametrize(
    ("model", "test"), [("columns.crfield", "test.txt"), ("attributes.crfield", "test.crfsuite")]
)


def predicted(files: Files, model: str) -> list[list[str]]:
    """Labels of the test data by the library itself."""
    X = files.tokens if model == "columns.crfield" else crfield.read_crfsuite(files / "test.crfsuite")[0]
    return [labels.tolist() for labels in crfield.load(files / model).predict(X)]


@FORMATS
def test_tagged_files_hold_what_the_model_predicts(files: Files, model: str, test: str) -> None:
    out = files / f"{test}.tagged"
    works("tag", "--model", files / model, files / test, "--output", out)
    tagged = crfield.read_columns(out)
    assert [labels.tolist() for labels in tagged.column(-1)] == predicted(files, model)
    assert [labels.tolist() for labels in tagged.column(-2)] == files.gold


def test_columns_come_back_as_they_were(files: Files) -> None:
    lines = (files / "test.txt").read_text().splitlines()
    out = works("tag", "-m", files / "columns.crfield", files / "test.txt").stdout.splitlines()
    assert len(out) == len(lines)
    assert all(new.startswith(old) and bool(new) == bool(old) for new, old in zip(out, lines))
    assert all(len(new.split(" ")) == 4 for new in out if new)


def test_gold_labels_are_not_needed_to_tag(files: Files) -> None:
    with_gold = works("tag", "-m", files / "columns.crfield", files / "test.txt").stdout.splitlines()
    without = works("tag", "-m", files / "columns.crfield", files / "bare.txt").stdout.splitlines()
    assert [line.split()[-1:] for line in with_gold] == [line.split()[-1:] for line in without]
    assert max(len(line.split()) for line in without) == 3


@FORMATS
def test_n_best_and_spans_are_those_of_the_model(files: Files, model: str, test: str) -> None:
    X = files.tokens if model == "columns.crfield" else crfield.read_crfsuite(files / "test.crfsuite")[0]
    loaded = crfield.load(files / model)
    blocks = works("tag", "-m", files / model, files / test, "--n-best", "3").stdout.rstrip("\n").split("\n\n")
    found = [own for sequence in loaded.predict_n_best(X, 3) for own in sequence]
    assert len(blocks) == len(found)
    for block, own in zip(blocks, found):
        head, *lines = block.split("\n")
        assert head.split()[0] == "#"
        assert float(head.split()[2]) == pytest.approx(own.probability, abs=1e-6)
        assert [line.split()[-1] for line in lines] == own.labels.tolist()
    told = [
        json.loads(line) for line in works("tag", "-m", files / model, files / test, "--spans").stdout.splitlines()
    ]
    assert [len(own["spans"]) for own in told] == [len(own) for own in loaded.predict_spans(X)]
    assert "three kinds of output" in run("tag", "-m", files / model, files / test, "--spans", "--marginals").output


@FORMATS
def test_marginals_are_those_of_the_model(files: Files, model: str, test: str) -> None:
    lines = works("tag", "-m", files / model, files / test, "--marginals").stdout.split("\n")
    shown = [float(line.split()[-1]) for line in lines if line]
    X = files.tokens if model == "columns.crfield" else crfield.read_crfsuite(files / "test.crfsuite")[0]
    loaded = crfield.load(files / model)
    code = {label: k for k, label in enumerate(loaded.classes_)}
    expected = [
        table[t, code[label]]
        for table, labels in zip(loaded.predict_proba(X), loaded.predict(X))
        for t, label in enumerate(labels)
    ]
    np.testing.assert_allclose(shown, expected, atol=6e-7)


@FORMATS
def test_evaluate_agrees_with_the_metrics(files: Files, model: str, test: str) -> None:
    facts = json.loads(works("evaluate", "-m", files / model, files / test, "--json", "--confusion").stdout)
    labels = predicted(files, model)
    assert facts["token_accuracy"] == token_accuracy(files.gold, labels)
    assert facts["spans"]["micro"]["f1"] == span_report(files.gold, labels).f1
    assert facts["scheme"] == "iob2"
    assert facts["sequences"] == 40
    assert sum(map(sum, facts["confusion"]["matrix"])) == facts["tokens"]


def test_a_tagged_file_scores_as_its_model_does(files: Files) -> None:
    tagged = works("tag", "-m", files / "columns.crfield", files / "test.txt").stdout
    (files / "tagged.txt").write_text(tagged)
    by_file = works("evaluate", "--predicted", files / "tagged.txt", "--json").stdout
    assert by_file == works("evaluate", "-m", files / "columns.crfield", files / "test.txt", "--json").stdout
    assert works("evaluate", "--predicted", "-", "--json", stdin=tagged).stdout == by_file


def test_schemes_are_asked_for_guessed_or_left_out(files: Files, tmp_path: Path) -> None:
    text = works("evaluate", "-m", files / "columns.crfield", files / "test.txt").stdout
    assert "token accuracy" in text
    assert "spans read as iob2" in text
    text = works("evaluate", "-m", files / "columns.crfield", files / "test.txt", "--scheme", "none").stdout
    assert "spans" not in text
    (tmp_path / "pos.txt").write_text("He PRP PRP\nruns VBZ NN\n\n")
    facts = json.loads(works("evaluate", "--predicted", tmp_path / "pos.txt", "--json").stdout)
    assert facts["scheme"] is None
    assert facts["spans"] is None
    assert facts["token_accuracy"] == 0.5
    (tmp_path / "ends.txt").write_text("a S-X S-X\nb B-X B-X\nc E-X O\n")
    facts = json.loads(works("evaluate", "--predicted", tmp_path / "ends.txt", "--json").stdout)
    assert facts["scheme"] == "bioes"
    assert facts["spans"]["micro"]["correct"] == 1


def test_strict_scores_count_only_spans_that_keep_to_the_scheme(tmp_path: Path) -> None:
    (tmp_path / "tags.txt").write_text("a B-X I-X\nb I-X I-X\nc O O\n")
    for strict, correct in (((), 1), (("--strict",), 0)):
        facts = json.loads(works("evaluate", "--predicted", tmp_path / "tags.txt", "--json", *strict).stdout)
        assert (facts["spans"]["micro"]["correct"], facts["mode"] == "strict") == (correct, bool(strict))
    assert "spans read as iob2, strict" in works("evaluate", "--predicted", tmp_path / "tags.txt", "--strict").stdout


def test_train_reports_what_the_model_says(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "m.crfield"
    options = ("-t", files / "words.template", "--dev", files / "test.txt", "--l2", 0.5, "--min-count", 2, *QUICK)
    result = works("train", files / "train.txt", "-m", path, "--json", *options)
    facts = json.loads(result.stdout)
    model = crfield.load(path)
    assert facts["sequences"] == 150
    assert facts["labels"] == len(model.classes_)
    assert facts["weights"] == len(model.coef_)
    assert facts["objective"] == model.objective_
    assert facts["converged"] is True
    assert facts["dev"]["token_accuracy"] == pytest.approx(model.score(files.tokens, files.gold))
    assert (model.l2, model.min_count, model.n_jobs, model.verbose) == (0.5, 2, None, 0)
    text = works("train", files / "train.txt", "-m", path, *options).stdout
    assert "150 sequences" in text
    assert "span F1" in text
    assert str(path) in text


def test_every_option_of_train_reaches_the_model(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "m.crfield"
    options = {
        "--l1": "0.25",
        "--feature-pairs": "all",
        "--transition-pairs": "all",
        "--solver": "lbfgs",
        "--max-iter": "77",
        "--seed": "5",
        "--decode": "marginal",
        "--tol": "0.01",
    }
    flags = [part for option in options.items() for part in option]
    works("train", files / "train.crfsuite", "-m", path, *flags, "--no-intercept", "--no-boundaries", "-q")
    model = crfield.load(path)
    for name, value in options.items():
        assert str(getattr(model, {"--seed": "random_state"}.get(name, name[2:].replace("-", "_")))) == value
    assert not model.intercept
    assert not model.boundaries


def test_without_a_template_all_columns_are_used_and_it_says_so(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "m.crfield"
    result = works("train", files / "train.txt", "-m", path, *QUICK)
    assert "as columns" in result.stderr
    assert "no template: using columns 0, 1 two steps either way" in result.stderr
    assert crfield.Template(crfield.load(path).template).columns == (0, 1)
    quiet = works("train", files / "train.txt", "-m", path, "--quiet", *QUICK)
    assert quiet.output == ""


def test_the_label_column_may_stand_anywhere(files: Files, tmp_path: Path) -> None:
    for name in ("train.txt", "test.txt"):
        rows = [line.split() for line in (files / name).read_text().splitlines()]
        turned = "\n".join(" ".join([row[2], row[0], row[1]]) if row else "" for row in rows)
        (tmp_path / name).write_text(turned)
    (tmp_path / "turned.template").write_text((files / "words.template").read_text().replace(",1]", ",2]"))
    template = (tmp_path / "turned.template").read_text().replace(",0]", ",1]")
    (tmp_path / "turned.template").write_text(template)
    path = tmp_path / "m.crfield"
    options = ("--label-column", 0, "-t", tmp_path / "turned.template", *QUICK, "-q")
    works("train", tmp_path / "train.txt", "-m", path, *options)
    scores = works("evaluate", "-m", path, tmp_path / "test.txt", "--label-column", 0, "--json").stdout
    assert json.loads(scores) == json.loads(
        works("evaluate", "-m", files / "columns.crfield", files / "test.txt", "--json").stdout
    )


def test_weights_in_a_crfsuite_file_count(files: Files, tmp_path: Path) -> None:
    text = (files / "train.crfsuite").read_text()
    first = text.split("\n\n", 1)[0]
    (tmp_path / "twice.crfsuite").write_text(f"{first}\n\n{text}")
    (tmp_path / "weighted.crfsuite").write_text(f"@weight:2\n{text}")
    objective = {}
    for name in ("twice", "weighted"):
        options = ("-m", tmp_path / f"{name}.crfield", "--json", "--tol", "1e-6")
        objective[name] = json.loads(works("train", tmp_path / f"{name}.crfsuite", *options).stdout)["objective"]
    assert objective["twice"] == pytest.approx(objective["weighted"], rel=1e-5)


def test_inspect_shows_the_model(files: Files) -> None:
    text = works("inspect", files / "columns.crfield", "--top", 5).stdout
    assert "ChainCRF" in text
    assert "token columns by a template (columns 0, 1)" in text
    assert "from \\ to" in text
    assert len(text[text.index("strongest features") :].splitlines()) == 6
    assert "from \\ to" not in works("inspect", files / "columns.crfield", "--no-transitions").stdout
    facts = json.loads(works("inspect", files / "columns.crfield", "--json", "--label", "B-QTY", "--top", 3).stdout)
    model = crfield.load(files / "columns.crfield")
    assert facts["labels"] == model.classes_.tolist()
    assert facts["parameters"]["template"] == (files / "words.template").read_text()
    assert [item["label"] for item in facts["top_features"]] == ["B-QTY"] * 3
    pairs = {(row["from"], row["to"]): row["weight"] for row in facts["transitions"]}
    assert pairs == model.transitions_.to_dict()


def test_ctrl_c_saves_the_model_so_far(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(crfield.ChainCRF):  # type: ignore[misc]
        def fit(self, *arguments: object, **options: object) -> Interrupted:
            def press(step: object, weights: object) -> None:
                if step.n_iter == 3:  # type: ignore[attr-defined]
                    raise KeyboardInterrupt

            self.callback = press
            return super().fit(*arguments, **options)

    monkeypatch.setattr(crfield, "ChainCRF", Interrupted)
    path = tmp_path / "m.crfield"
    result = run("train", files / "train.txt", "-m", path, "--tol", "1e-9", "--solver", "lbfgs")
    assert result.exit_code == 130
    assert f"the model so far was saved to {path}" in result.stderr
    assert "warning: training stopped" in result.stderr
    assert crfield.load(path).stop_reason_ == "interrupted"
    works("tag", "-m", path, files / "test.txt")


def test_ctrl_c_elsewhere_ends_with_its_code(files: Files) -> None:
    # A shell may have told us to ignore the signal, and a child inherits that.
    listens = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{listens}; from crfield.cli.main import main; main()"
    command = [sys.executable, "-c", program, "tag", "-m", str(files / "columns.crfield")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"2 d\ncups x\n\n")
        process.stdin.flush()
        # The answer comes before the input has ended, and shows that the command is at work.
        answer = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert answer == b"2 d B-QTY\n"
    assert (process.returncode, errors) == (130, b"interrupted\n")


def test_as_a_program(files: Files) -> None:
    command = [sys.executable, "-m", "crfield.cli.main", "evaluate", "-m", str(files / "columns.crfield"), "--json"]
    done = subprocess.run(
        [*command, str(files / "test.txt")], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["sequences"] == 40


def test_a_reader_that_leaves_is_no_error(files: Files, tmp_path: Path) -> None:
    big = tmp_path / "big.txt"
    big.write_text(((files / "bare.txt").read_text() + "\n") * 400)
    command = [sys.executable, "-m", "crfield.cli.main", "tag", "-m", str(files / "columns.crfield"), str(big)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        errors = process.stderr.read()
        process.wait(timeout=60)
    assert (process.returncode, errors) == (141, b"")


def test_a_reader_that_never_came_is_no_error(files: Files) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "crfield.cli.main", "inspect", str(files / "columns.crfield")]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=buffered, check=False, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_help_names_every_verb_and_option() -> None:
    text = works("train", "--help").stdout
    for option in ("--template", "--label-column", "--dev", "--l1", "--tol", "--threads", "--json", "--quiet"):
        assert option in text
    assert all(verb in works("--help").stdout for verb in ("train", "tag", "evaluate", "inspect", "demo"))
    assert works("--version").stdout == f"crfield {crfield.__version__}\n"
