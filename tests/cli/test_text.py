"""The command line on words: text features, and CoNLL-U files from training to the tagged file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from crfield import load, make_phrases, read_conllu
from tests.cases.command_line import QUICK, Files, make_files, run, works


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_files(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def treebank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.conllu, test.conllu.gz and bare.conllu; quantities are two words of one token."""
    folder = tmp_path_factory.mktemp("conllu")
    phrases = make_phrases(130, random_state=5)
    for name, part, bare in (("train", slice(0, 100), 0), ("test", slice(100, 130), 0), ("bare", slice(100, 130), 1)):
        lines = []
        for k, (tokens, labels) in enumerate(zip(phrases.tokens[part], phrases.labels[part], strict=True)):
            lines += [f"# sent_id = {k}", f"# text = {' '.join(tokens)}"]
            for t, (word, label) in enumerate(zip(tokens, labels, strict=True), 1):
                kind, feats = ("_", "_") if bare else (label.replace("-", ""), f"Long={len(word) > 4}")
                if t == 1 and len(tokens) > 1:
                    lines.append("1-2\t" + tokens[0] + tokens[1] + "\t_" * 8)
                tag = "_" if bare else label
                lines.append(
                    "\t".join([str(t), word, word.lower(), kind, tag, feats, "_", "_", "_", "SpaceAfter=No"])
                )
                if t == 1:
                    lines.append("1.1\tempty" + "\t_" * 8)
            lines.append("")
        text = "\n".join(lines) + "\n"
        (folder / f"{name}.conllu").write_text(text)
        if name == "test":
            (folder / "test.conllu.gz").write_bytes(gzip.compress(text.encode()))
    return folder


# ------------------------------------------------------------------------------------------- text features


def test_text_features_from_training_to_tagging(files: Files, tmp_path: Path) -> None:
    model = tmp_path / "text.crfield"
    (tmp_path / "units.txt").write_text("cup\ncups\ntable spoon\n")
    (tmp_path / "bits").write_text("0110\tcup\t3\n")
    words = ("--features", "text", "--lexicon", tmp_path / "units.txt", "--clusters", tmp_path / "bits")
    done = works("train", files / "train.txt", *words, "-m", model, *QUICK, "--dev", files / "test.txt")
    assert "text features of columns 0, 1" in done.stderr
    assert "dev" in done.stdout
    loaded = load(model)
    assert set(loaded.features.lexicons) == {"units"}
    assert loaded.features.column_numbers == {"word": 0, "tag": 1}
    tagged = works("tag", "-m", model, files / "test.txt").stdout
    rows = [line.split() for line in tagged.splitlines() if line]
    assert all(len(row) == 4 for row in rows)
    bare = works("tag", "-m", model, files / "bare.txt").stdout
    assert [row[-1] for row in rows] == [line.split()[-1] for line in bare.splitlines() if line]
    right = sum(row[2] == row[3] for row in rows) / len(rows)
    assert right > 0.85
    assert f"token accuracy {right:.4f}" in works("evaluate", "-m", model, files / "test.txt").stdout
    assert '"spans"' in works("tag", "-m", model, "--spans", files / "bare.txt").stdout
    assert works("tag", "-m", model, "--n-best", "2", files / "bare.txt").stdout.startswith("# 0 0.")
    told = works("explain", "-m", model, files / "test.txt", "--sequence", "0", "--step", "0").stdout
    assert "word=" in told
    assert "word" in works("explain", "-m", model, files / "test.txt", "--by-field").stdout
    assert "errors" in works("explain", "-m", model, files / "test.txt", "--errors").stdout
    shown = works("inspect", model).stdout
    assert "words, by text features (columns 0 word, 1 tag)" in shown
    assert "features" in json.loads(works("inspect", model, "--json").stdout)["parameters"]


def test_plain_text_one_token_a_line(tmp_path: Path) -> None:
    phrases = make_phrases(60, random_state=2)
    pairs = zip(phrases.tokens, phrases.labels, strict=True)
    both = "\n".join("".join(f"{a} {b}\n" for a, b in zip(*pair, strict=True)) for pair in pairs)
    (tmp_path / "train.txt").write_text(both)
    (tmp_path / "raw.txt").write_text("2\ncups\nflour\n\nsalt\n")
    works("train", tmp_path / "train.txt", "--features", "text", "-m", tmp_path / "m", *QUICK, "-q")
    tagged = works("tag", "-m", tmp_path / "m", tmp_path / "raw.txt").stdout.splitlines()
    assert [line.split()[:1] for line in tagged] == [["2"], ["cups"], ["flour"], [], ["salt"]]
    assert load(tmp_path / "m").predict([["2", "cups", "flour"]])[0].tolist() == [r.split()[1] for r in tagged[:3]]


def test_tune_encode_and_compare_with_text_features(files: Files, tmp_path: Path) -> None:
    train = files / "train.txt"
    text = ("--features", "text")
    works(
        "tune", train, *text, "--l2", "1", "--folds", "2", "-m", tmp_path / "tuned", "--tol", "1e-2", "--threads", 1
    )
    assert works("tag", "-m", tmp_path / "tuned", files / "bare.txt").stdout
    works("encode", train, tmp_path / "data", *text, "-q")
    works("train", "--encoded", tmp_path / "data", "-m", tmp_path / "disk", *QUICK, "--dev", files / "test.txt", "-q")
    works("train", train, *text, "-m", tmp_path / "memory", *QUICK, "-q")
    disk, memory = (works("tag", "-m", tmp_path / name, files / "bare.txt").stdout for name in ("disk", "memory"))
    same = sum(a == b for a, b in zip(disk.splitlines(), memory.splitlines(), strict=True))
    assert same / len(disk.splitlines()) > 0.98
    compared = works("compare-trainers", train, *text, "--trainers", "perceptron", "--max-iter", "2", "-q").stdout
    assert "perceptron" in compared


def test_a_model_of_sentences_made_in_python(files: Files, tmp_path: Path) -> None:
    """Columns that were never numbered are those of the rows of training; a label behind them is left alone."""
    from crfield import ChainCRF, TextFeatures, read_columns

    X, y = read_columns(files / "train.txt").split_column(-1)
    ChainCRF(features=TextFeatures(), tol=1e-3).fit(X, y).save(tmp_path / "m")
    assert "micro average" in works("evaluate", "-m", tmp_path / "m", files / "test.txt").stdout
    narrow = tmp_path / "narrow.txt"
    narrow.write_text("cups\n")
    wrong = run("tag", "-m", tmp_path / "m", narrow)
    assert wrong.exit_code == 1
    assert "read column 1, but there is 1 column" in wrong.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--features", "text", "--template", "words.template"), "makes features of words"),
        (("--features", "text", "--format", "crfsuite"), "makes features of words"),
        (("--lexicon", "train.txt"), "go with --features text"),
        (("--columns", "form", "--format", "columns"), "CoNLL-U"),
        (("--columns", "pos"), "no column 'pos'"),
        (("--columns", "form,upos", "--label", "upos+feats"), "none that"),
    ],
)
def test_options_that_do_not_fit(files: Files, options: tuple[str, ...], words: str, tmp_path: Path) -> None:
    given = [files / name if name.endswith((".txt", ".template")) else name for name in options]
    wrong = run("train", files / "train.txt", "-m", tmp_path / "m", *given)
    assert wrong.exit_code == 2
    assert words in " ".join(wrong.stderr.replace("│", "").split())


# ------------------------------------------------------------------------------------------- CoNLL-U


@pytest.mark.parametrize("how", [("--features", "text"), (), ("--template",)])
def test_conllu_from_training_to_the_tagged_file(treebank: Path, how: tuple[str, ...], tmp_path: Path) -> None:
    model, out = tmp_path / "m.crfield", tmp_path / "out.conllu"
    if how == ("--template",):
        (tmp_path / "t").write_text("U00:%x[0,0]\nU01:%x[0,1]\nB\n")
        how = ("--template", str(tmp_path / "t"), "--columns", "form,lemma")
    test = treebank / "test.conllu.gz"
    done = works("train", treebank / "train.conllu", *how, "--label", "xpos", "-m", model, *QUICK, "--dev", test)
    assert "100 sequences" in done.stdout
    works("tag", "-m", model, treebank / "bare.conllu", "-o", out)
    before, after = (path.read_text().splitlines() for path in (treebank / "bare.conllu", out))
    assert len(before) == len(after)
    for old, new in zip(before, after, strict=True):
        if old.split("\t")[0].isdigit():
            fields = new.split("\t")
            assert fields[4] != "_"
            assert [*fields[:4], "_", *fields[5:]] == old.split("\t")
        else:
            assert new == old, "comments, tokens of several words and empty nodes stay"
    found, gold = read_conllu(out, label="xpos").y or [], read_conllu(test, label="xpos").y or []
    pairs = [(a, b) for one, other in zip(found, gold, strict=True) for a, b in zip(one, other, strict=True)]
    right = sum(a == b for a, b in pairs) / len(pairs)
    assert right > 0.65
    assert f"token accuracy {right:.4f}" in works("evaluate", "-m", model, test).stdout
    assert "CoNLL-U form" in works("inspect", model).stdout
    assert "O" in works("explain", "-m", model, test, "--sequence", "0").stdout
    assert "errors" in works("explain", "-m", model, test, "--errors").stdout
    piped = works("tag", "-m", model, "--format", "conllu", stdin=(treebank / "bare.conllu").read_bytes()).stdout
    assert piped == out.read_text()


def test_conllu_answers_of_other_kinds(treebank: Path, tmp_path: Path) -> None:
    model = tmp_path / "m"
    works("train", treebank / "train.conllu", "--label", "upos+feats", "-m", model, *QUICK, "-q")
    bare = treebank / "bare.conllu"
    chances = works("tag", "-m", model, bare, "--marginals").stdout
    words = [line.split("\t") for line in chances.splitlines() if line.split("\t")[0].isdigit()]
    assert all(row[9].startswith("SpaceAfter=No|Probability=0.") or row[9].endswith("=1.000000") for row in words)
    assert all(row[5].startswith("Long=") and row[3] != "_" for row in words)
    best = works("tag", "-m", model, bare, "--n-best", "2").stdout
    assert best.count("# n_best = 0") == best.count("# n_best = 1") == 30
    (tmp_path / "best.conllu").write_text(best)
    assert len(read_conllu(tmp_path / "best.conllu").X) == 60
    spans = tmp_path / "spans"
    works("train", treebank / "train.conllu", "--label", "xpos", "-m", spans, *QUICK, "-q")
    assert works("tag", "-m", spans, bare, "--spans").stdout.count("\n") == 30


def test_conllu_through_tune_and_encode(treebank: Path, tmp_path: Path) -> None:
    train, bare = treebank / "train.conllu", treebank / "bare.conllu"
    works("tune", train, "--l2", "1", "--folds", "2", "-m", tmp_path / "tuned", "--tol", "1e-2", "--threads", "1")
    assert "B" in works("tag", "-m", tmp_path / "tuned", bare).stdout
    works("encode", train, tmp_path / "data", "--columns", "form,lemma", "-q")
    encoded = ("--encoded", tmp_path / "data", "--columns", "form,lemma", "--label", "upos")
    works("train", *encoded, "-m", tmp_path / "disk", *QUICK, "-q")
    assert works("tag", "-m", tmp_path / "disk", bare).stdout.startswith("# sent_id = 0")


def test_conllu_that_cannot_be_used(files: Files, treebank: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.conllu"
    bad.write_text("# c\n1\tHi\thi\tX\tX\t_\t_\t_\t_\t_\n\n1\tHi\n")
    wrong = run("train", bad, "-m", tmp_path / "m")
    assert wrong.exit_code == 1
    assert "bad.conllu, line 4: expected 10 fields separated by tabs, got 2" in wrong.stderr
    empty = run("train", treebank / "bare.conllu", "-m", tmp_path / "m")
    assert "'upos' is empty" in empty.stderr
    works("train", files / "train.txt", "--features", "text", "-m", tmp_path / "columns", *QUICK, "-q")
    asked = run("tag", "-m", tmp_path / "columns", treebank / "bare.conllu")
    assert asked.exit_code == 1
    assert "--label upos" in asked.stderr
    assert works(
        "tag", "-m", tmp_path / "columns", treebank / "bare.conllu", "--label", "xpos", "--columns", "form,lemma"
    ).stdout.startswith("# sent_id")
