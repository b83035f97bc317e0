"""Every verb that takes a model has an answer, or a sentence, for every kind of model that can be saved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import Result

import crfield
from crfield.cli.main import VERBS, loaded
from crfield.cli.paths import READS, uses
from tests.cases.command_line import run, works
from tests.stored.test_stored import STORED

MODELS = {case.name: folder / f"{case.name}.crfield" for folder, case in STORED}
COLUMNS = ("chain-template", "chain-text", "pipeline")
ATTRIBUTES = (
    "chain-strings",
    "chain-order-2",
    "memm",
    "m-estimated",
    "latent-dynamic",
    "semi-markov",
    "selected-path",
)
COMMANDS = [
    "tag {data} -m {model}",
    "tag {data} -m {model} --marginals",
    "tag {data} -m {model} --n-best 2",
    "tag {data} -m {model} --spans",
    "evaluate {data} -m {model}",
    "explain {data} -m {model}",
    "explain {data} -m {model} --sequence 0",
    "explain {data} -m {model} --errors",
    "convert {model} {out}.crfield",
    "convert {model} {out}.crfsuite",
    "convert {model} {out}.json",
    "compare-inference {model} {data} --engines chain",
    "inspect {model}",
    "inspect {model} --json",
    "inspect {model} --label A",
    "stream {model} --lag 1 --go-on",
    "export {model} {out}.h",
    "report {model} {data} -o {out}.html",
]
each_model = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same two steps in both formats."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "attributes").write_text("A\tword=0\tgroup=0\nB\tword=3\tgroup=1\n\n")
    (folder / "columns").write_text("w0 g0 A\nw3 g1 B\n\n")
    return folder


def asked(command: str, name: str, data: Path, out: Path) -> Result:
    file = data / ("columns" if name in COLUMNS else "attributes")
    words = (word.format(data=file, model=MODELS[name], out=out / "out") for word in command.split())
    return run(*words, stdin="0.5 1.5 2.5\n" if command.startswith("stream") else None)


def test_every_verb_that_takes_a_model_is_asked() -> None:
    takes = {name for name in VERBS if uses(loaded(name).callback).get("model") is READS}
    assert takes == {command.split()[0] for command in COMMANDS}


@each_model
def test_an_answer_or_a_sentence(name: str, data: Path, tmp_path: Path) -> None:
    for command in COMMANDS:
        result = asked(command, name, data, tmp_path)
        assert result.exception is None or isinstance(result.exception, SystemExit), (command, result.exception)
        assert result.exit_code in (0, 1, 2), command
        if result.exit_code:
            sentence = result.stderr.splitlines()[-1]
            assert sentence.startswith("error: "), (command, result.stderr)
            assert sentence.endswith("."), (command, result.stderr)
            assert result.stdout == "", command


@pytest.mark.parametrize("name", [*COLUMNS, *ATTRIBUTES])
def test_models_of_text_label_text(name: str, data: Path, tmp_path: Path) -> None:
    tagged = asked("tag {data} -m {model}", name, data, tmp_path)
    assert tagged.exit_code == 0, tagged.stderr
    model, last = crfield.load(MODELS[name]), [line.split()[-1] for line in tagged.stdout.splitlines() if line]
    X = [[("w0", "g0"), ("w3", "g1")]] if name in COLUMNS else [[["word=0", "group=0"], ["word=3", "group=1"]]]
    assert last == model.predict(X)[0].tolist()
    assert asked("evaluate {data} -m {model}", name, data, tmp_path).exit_code == 0


@pytest.mark.parametrize(
    ("name", "command", "says"),
    [
        (
            "maxent",
            COMMANDS[0],
            "holds a MaxentClassifier, which does not label the steps of text files. Use it from",
        ),
        ("hidden", COMMANDS[4], "crfield.load(path).predict(X)"),
        ("graph", COMMANDS[0], "crfield.load(path).predict(X)"),
        ("text-features", COMMANDS[5], "crfield.load(path).transform(X)"),
        ("semi-markov", COMMANDS[2], "holds a SemiMarkovCRF, which has no n-best labellings; a ChainCRF has."),
        ("semi-markov", COMMANDS[11], "has no potentials"),
        ("latent-dynamic", COMMANDS[5], "has no explanations"),
        ("memm", COMMANDS[6], "only --errors are for it"),
        ("hmm-gaussian", COMMANDS[8], "holds a HMM; only a ChainCRF is converted"),
        ("maxent", COMMANDS[15], "holds a MaxentClassifier, which labels nothing step by step; a ChainCRF does."),
        ("chain-text", COMMANDS[15], "holds a ChainCRF of words or records, and lines of numbers are not for it"),
        ("graph", COMMANDS[16], "only models of plain numbers can be exported"),
        ("hmm-gaussian", COMMANDS[14], "a HMM has no features of single labels: leave out --label"),
    ],
)
def test_what_a_verb_cannot_do_is_a_wrong_command(
    name: str, command: str, says: str, data: Path, tmp_path: Path
) -> None:
    result = asked(command, name, data, tmp_path)
    assert result.exit_code == 2
    assert says in result.stderr
    assert list(tmp_path.iterdir()) == []


@each_model
def test_inspect_tells_what_there_is(name: str) -> None:
    model = crfield.load(MODELS[name])
    text = works("inspect", MODELS[name]).stdout
    facts = json.loads(works("inspect", MODELS[name], "--json").stdout)
    classes = getattr(model, "classes_", {})
    groups = list(classes.values()) if isinstance(classes, dict) else [classes]
    assert facts["kind"] == type(model).__name__
    assert text.startswith("model ")
    assert facts["kind"] in text.splitlines()[0]
    assert "\nparameters " in text
    assert facts["parameters"]
    for labels in groups:
        assert f"{len(labels):,}: {' '.join(map(str, labels.tolist()))}" in text
    if hasattr(model, "converged_"):
        assert facts["converged"] is model.converged_
        assert "\ntraining " in text
    if hasattr(model, "coef_"):
        assert facts["weights"] == model.coef_.size
        assert f"{model.coef_.size:,}" in text
    if hasattr(model, "top_features"):
        assert "\nstrongest features\n" in text
        assert facts["top_features"]
    if hasattr(model, "transitions_") or hasattr(model, "transition_probabilities_"):
        assert "\ntransition" in text
        assert facts["transitions"]
    if not hasattr(model, "predict"):
        assert "\nlearnt " in text
        assert facts["learnt"]
