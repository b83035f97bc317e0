"""Model files of CRFsuite: what python-crfsuite writes is read, what we write it reads, damage is refused."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfield
from crfield import MEMM, ChainCRF, write_crfsuite_model
from crfield.compat.crfsuite_model import to_crfsuite
from crfield.errors import InputError, ModelFileError
from crfield.storage.foreign.cqdb import build_cqdb, hash_of, parse_cqdb
from crfield.storage.foreign.crfsuite import CrfsuiteModel, format_crfsuite_model, parse_crfsuite_model

PLAIN = {"intercept": False, "boundaries": False}
SMALL = CrfsuiteModel.of(
    ["O", "I", "B"],
    ["w:é", "long attribute name, more than twelve bytes", "w:b"],
    state={
        ("w:é", "B"): 1.5,
        ("w:é", "O"): -0.25,
        ("w:b", "I"): 2.0,
        (
            "long attribute name, more than twelve bytes",
            "I",
        ): 0.5,
    },
    transitions={("B", "I"): 1.0, ("O", "O"): 0.5, ("I", "B"): -1.0},
)


def sequences(count: int, seed: int) -> tuple[list[list[dict[str, Any]]], list[list[str]]]:
    """Words, numbers, truth values, lists and nested dicts."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(count):
        length = int(rng.integers(1, 8))
        labels = rng.choice(["O", "B-PER", "I-PER", "B-ÖRT"], size=length)
        X.append(
            [
                {
                    "word": f"w{rng.integers(30)}:é",
                    "upper": bool(rng.integers(2)),
                    "speed": float(rng.normal(3.0)),
                    "near": [f"n{k}" for k in rng.integers(5, size=2)],
                    "next": {"word": f"{label}{rng.integers(3)}", "count": int(rng.integers(3))},
                }
                for label in labels
            ]
        )
        y.append(labels.tolist())
    return X, y


@pytest.fixture(scope="module")
def rival(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A model that python-crfsuite has trained and written, and its tagger."""
    pycrfsuite = pytest.importorskip("pycrfsuite", reason="python-crfsuite is not installed")
    path = tmp_path_factory.mktemp("crfsuite") / "rival.crfsuite"
    trainer = pycrfsuite.Trainer(verbose=False, params={"c1": 0.05, "c2": 0.01, "max_iterations": 60})
    for x, labels in zip(*sequences(60, 0)):
        trainer.append(pycrfsuite.ItemSequence(x), labels)
    trainer.train(str(path))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(path))
    return path, tagger


def check_same_answers(model: ChainCRF, tagger: Any, X: list[Any]) -> None:
    """Tags, marginals and probabilities of the two; labels in the same order."""
    import pycrfsuite

    assert model.classes_.tolist() == tagger.labels()
    tables = model.predict_proba(X)
    found = model.predict(X)
    for x, table, labels in zip(X, tables, found):
        tagger.set(pycrfsuite.ItemSequence(x))
        assert tagger.tag() == labels.tolist()
        theirs = [[tagger.marginal(label, t) for label in tagger.labels()] for t in range(len(x))]
        np.testing.assert_allclose(table, theirs, atol=1e-12)
        assert np.exp(model.log_prob([x], [labels])[0]) == pytest.approx(
            tagger.probability(labels.tolist()), rel=1e-9
        )


def test_a_model_of_crfsuite_answers_as_it_does_there(rival: tuple[Path, Any]) -> None:
    path, tagger = rival
    model = crfield.load(path)
    check_same_answers(model, tagger, sequences(25, 1)[0])
    state = tagger.info().state_features
    names, attribute, label, weight = crfield.compat.crfsuite_model.attribute_weights(model)
    ours = {(names[a], model.classes_[k]): w for a, k, w in zip(attribute, label, weight)}
    assert {key: round(value, 6) for key, value in ours.items()} == pytest.approx(state, abs=2e-6)
    assert names == sorted(tagger.info().attributes, key=lambda name: int(tagger.info().attributes[name]))


def test_written_again_it_is_the_same_file(rival: tuple[Path, Any], tmp_path: Path) -> None:
    path, _ = rival
    model = crfield.load(path)
    write_crfsuite_model(model, tmp_path / "again.crfsuite")
    assert (tmp_path / "again.crfsuite").read_bytes() == path.read_bytes()
    model.save(tmp_path / "ours.crfield")
    ours = crfield.load(tmp_path / "ours.crfield")
    assert np.isnan(ours.objective_)
    assert ours.stop_reason_ == "trained by CRFsuite"
    assert format_crfsuite_model(to_crfsuite(ours)) == path.read_bytes()


@pytest.mark.parametrize("pairs", ["observed", "all"])
def test_a_model_of_ours_answers_in_crfsuite_as_here(pairs: str, tmp_path: Path) -> None:
    pycrfsuite = pytest.importorskip("pycrfsuite", reason="python-crfsuite is not installed")
    X, y = sequences(40, 2)
    model = ChainCRF(l1=0.1, l2=0.1, feature_pairs=pairs, transition_pairs=pairs, **PLAIN).fit(X, y)
    write_crfsuite_model(model, tmp_path / "ours.crfsuite")
    tagger = pycrfsuite.Tagger()
    tagger.open(str(tmp_path / "ours.crfsuite"))
    check_same_answers(model, tagger, sequences(15, 3)[0])


def test_intercepts_and_boundaries_are_carried_by_attributes_that_the_data_have(tmp_path: Path) -> None:
    X, y = sequences(30, 4)
    model = ChainCRF().fit(X, y)
    with pytest.raises(InputError, match="bias scores, which CRFsuite does not"):
        write_crfsuite_model(model, tmp_path / "no.crfsuite")
    with pytest.raises(InputError, match="boundaries=False, or pass start="):
        write_crfsuite_model(model, tmp_path / "no.crfsuite", bias="bias")
    assert not (tmp_path / "no.crfsuite").exists()
    write_crfsuite_model(model, tmp_path / "m.crfsuite", bias="(b)", start="(s)", end="(e)")
    marked = [[{**step, "(b)": 1.0} for step in x] for x in X]
    for x in marked:
        x[0] = {**x[0], "(s)": 1.0}
        x[-1] = {**x[-1], "(e)": 1.0}
    ours, theirs = model.predict_proba(X), crfield.load(tmp_path / "m.crfsuite").predict_proba(marked)
    for a, b in zip(ours, theirs):
        np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize(
    ("model", "data", "words"),
    [
        (ChainCRF(**PLAIN), [np.eye(3)], "vectors"),
        (ChainCRF(standardize=True, **PLAIN), [[{"a": 1.0}, {"a": 2.0}, {"b": 3.0}]], "standardised"),
        (ChainCRF(transition_features="all", **PLAIN), [[["a"], ["b"], ["c"]]], "features of transitions"),
        (ChainCRF(order=2, **PLAIN), [[["a"], ["b"], ["c"]]], "an order above 1"),
        (ChainCRF(constraints=[("V", "V")], **PLAIN), [[["a"], ["b"], ["c"]]], "fixed scores"),
        (MEMM(**PLAIN), [[["a"], ["b"], ["c"]]], "a normaliser for each step"),
        (ChainCRF(**PLAIN), [[{"a:b": "c"}, {"a": "b:c"}, {"d": "e"}]], "two features would both be called 'a:b:c'"),
    ],
    ids=["vectors", "standardised", "edge features", "order", "rules", "memm", "names that meet"],
)
def test_what_crfsuite_cannot_hold_is_refused(model: ChainCRF, data: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        write_crfsuite_model(model.fit(data, [["N", "V", "N"]]), tmp_path / "m")


def test_labels_that_are_no_strings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="labels are strings of one or more characters, this model has 1"):
        write_crfsuite_model(ChainCRF(**PLAIN).fit([[["a"], ["b"]]], [[1, 2]]), tmp_path / "m")


def test_dicts_lists_and_attribute_files_mean_the_same(tmp_path: Path) -> None:
    """Dicts are joined as python-crfsuite joins them, also after saving; a name that comes twice counts twice."""
    read = crfield.load(io.BytesIO(format_crfsuite_model(SMALL)))
    read.save(tmp_path / "m.crfield")
    dicts = [[{"w": "é"}, {"w": ["b", "b"], "no": False}, {"w": {"x": "y"}, "w:b": 2.0, "new": "word"}]]
    names = [[["w:é"], ["w:b", "w:b"], ["w:x:y", "w:b", "w:b"]]]
    text = "O\tw\\:é\nO\tw\\:b\tw\\:b\nO\tw\\:b:2\n"
    file = crfield.read_crfsuite(io.StringIO(text))[0]
    for model in (read, crfield.load(tmp_path / "m.crfield"), pickle.loads(pickle.dumps(read))):
        for X in (dicts, names, file):
            assert model.potentials(X).node.tolist() == [[-0.25, 0.0, 1.5], [0.0, 4.0, 0.0], [0.0, 4.0, 0.0]]


def test_weights_of_zero_and_their_attributes_are_left_out() -> None:
    model = CrfsuiteModel.of(
        ["N"], ["a", "b"], state={("a", "N"): 0.0, ("b", "N"): 1.0}, transitions={("N", "N"): 0.0}
    )
    again = parse_crfsuite_model(format_crfsuite_model(model))
    assert (again.attributes(), again.pair.tolist()) == (["b"], [])


def test_a_model_without_any_weight_is_a_file_too() -> None:
    nothing = CrfsuiteModel.of(["N", "V"], [], state={}, transitions={})
    model = crfield.load(io.BytesIO(format_crfsuite_model(nothing)))
    assert model.predict_proba([[["a"]]])[0].tolist() == [[0.5, 0.5]]


def lookup3(key: bytes) -> int:
    """Bob Jenkins's hash, a byte string at a time."""
    low = 0xFFFFFFFF

    def rotated(x: int, k: int) -> int:
        return ((x << k) | (x >> (32 - k))) & low

    a = b = c = (0xDEADBEEF + len(key)) & low
    while True:
        block = key[:12].ljust(12, b"\0")
        a, b, c = (
            (value + int.from_bytes(block[4 * k : 4 * k + 4], "little")) & low for k, value in enumerate((a, b, c))
        )
        if len(key) <= 12:
            break
        key = key[12:]
        for k in (4, 6, 8, 16, 19, 4):
            a, c = ((a - c) & low) ^ rotated(c, k), (c + b) & low
            a, b, c = b, c, a
    for k in (14, 11, 25, 16, 4, 14, 24):
        c = ((c ^ b) - rotated(b, k)) & low
        a, b, c = b, c, a
    return b


def test_hashes_are_those_of_lookup3() -> None:
    assert lookup3(b"Four score and seven years ago") == 0x17770551  # its author's own example
    names = [bytes([65 + n % 26]) * n for n in range(1, 40)]
    assert [hash_of(name) for name in names] == [lookup3(name + b"\0") for name in names]
    pool, offsets = parse_cqdb(np.frombuffer(build_cqdb(names), np.uint8), len(names), "labels")
    assert (bytes(pool), offsets[-1]) == (b"".join(names), sum(range(1, 40)))


# ------------------------------------------------------------------------ damage


def test_a_file_cut_anywhere_is_refused() -> None:
    data = format_crfsuite_model(SMALL)
    for end in [*range(0, 64, 3), *range(64, len(data), 97), len(data) - 1]:
        with pytest.raises(ModelFileError):
            crfield.load(io.BytesIO(data[:end]) if end > 3 else io.BytesIO(b"lCRF"))


def test_changed_bytes_are_refused_or_harmless() -> None:
    """One or several changed bytes end in `ModelFileError` or in a model that answers; names never change unseen."""
    data = format_crfsuite_model(SMALL)
    rng = np.random.default_rng(5)
    loaded = 0
    for trial in range(300):
        changed = bytearray(data)
        for at in rng.integers(4, len(data), size=1 + trial % 3):
            changed[at] = int(rng.choice([changed[at] ^ (1 << int(rng.integers(8))), 0, 255, int(rng.integers(256))]))
        try:
            model = parse_crfsuite_model(bytes(changed))
        except ModelFileError:
            continue
        assert (model.labels, model.attributes()) == (SMALL.labels, SMALL.attributes())
        if loaded < 10:
            assert len(crfield.load(io.BytesIO(bytes(changed))).predict([[["w:b"], ["w:é"]]])[0]) == 2
        loaded += 1
    assert 0 < loaded < 270


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        (4, 5, "should have 5 bytes and has"),
        (8, 0x20202020, "it is of type b'    '"),
        (12, 101, "version 101"),
        (20, 0, "it claims 0 labels"),
        (20, 2**32 - 1, "it claims 4,294,967,295 labels"),
        (28, 2**32 - 1, "would lie outside of the file"),
        (28, 47, "would lie outside of the file"),
        (32, 60, "labels do not begin as a CQDB"),
        (44, 60, "references AFRF are not 3 within the file"),
        (48 + 8, 2**31, "list of features is not one"),
        (48 + 12, 7, "neither one of a state nor of a transition"),
        (48 + 16, 2**32 - 1, "lists a feature of another"),
        (48 + 20, 2**32 - 1, "names a label or an attribute that is not there"),
        (48 + 28, 0x7FF00000, "a weight is not a finite number"),
    ],
)
def test_damage_is_told(at: int, value: int, words: str) -> None:
    data = bytearray(format_crfsuite_model(SMALL))
    data[at : at + 4] = value.to_bytes(4, "little")
    with pytest.raises(ModelFileError, match=words):
        crfield.load(io.BytesIO(bytes(data)))


def test_names_that_are_not_utf8_are_refused() -> None:
    latin = CrfsuiteModel(
        ("N",),
        np.frombuffer("é".encode("latin-1"), np.uint8),
        np.array([0, 1]),
        *(np.zeros(1, np.int64),) * 2,
        np.ones(1),
        np.zeros(0, np.int64),
        np.zeros(0),
    )
    with pytest.raises(ModelFileError, match="not UTF-8"):
        crfield.load(io.BytesIO(format_crfsuite_model(latin)))
