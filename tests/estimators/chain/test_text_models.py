"""A chain that reads sentences itself: text features as a part of the model and of its file."""

from __future__ import annotations

import copy
import io
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import crfield
from crfield import (
    MEMM,
    ChainCRF,
    ChainCRFCV,
    HiddenCRF,
    LatentDynamicCRF,
    SemiMarkovCRF,
    SensorFeatures,
    TextFeatures,
    TokenColumns,
    encode_dataset,
    load,
)
from crfield.errors import FeatureError, InputError, ModelFileError, NotFittedError, ShapeError, TemplateError
from crfield.features.text.lexicon import Lexicon
from crfield.features.transformed import transformer_from_state
from tests.cases.estimators import as_rows, world
from tests.cases.model_file_fuzz import edit_arrays, edit_header

RICH = TextFeatures(
    columns={"word": 0, "tag": 1},
    word=(-1, 0),
    length=0,
    lexicons={"low": Lexicon(["Z0"], ignore_case=True), "pairs": Lexicon(["w00 w01", ("a b",)])},
    clusters={"w10": "0110", "z1": "01"},
    cluster_bits=(2, 4),
    conjunctions=(("tag[-1]", "tag"), ("word", "cluster2[+1]")),
    min_count=2,
)


def sentences(n: int = 20, seed: int = 0) -> tuple[list[list[tuple[str, str]]], list[list[str]]]:
    X, y = world(n, seed=seed)
    return as_rows(X), [[{"A": "B-A", "B": "I-A", "C": "O"}[label] for label in labels] for labels in y]


def stored(model: Any) -> bytes:
    stream = io.BytesIO()
    model.save(stream)
    return stream.getvalue()


@pytest.mark.parametrize("features", [TextFeatures(), RICH])
def test_it_is_the_chain_of_what_the_features_give(features: TextFeatures) -> None:
    X, y = sentences()
    new, _ = sentences(8, seed=1)
    inside = ChainCRF(features=features).fit(X, y)
    outside = clone(features).fit(X)
    plain = ChainCRF().fit(outside.transform(X), y)
    assert np.array_equal(inside.coef_, plain.coef_)
    assert not hasattr(features, "vocabulary_"), "the user's features were fitted in their place"
    given = outside.transform(new)
    for one, other in zip(inside.predict_proba(new), plain.predict_proba(given), strict=True):
        assert np.array_equal(one, other)
    assert str(inside.predict_n_best(new, 3)) == str(plain.predict_n_best(given, 3))
    assert inside.predict_spans(new) == plain.predict_spans(given)
    assert str(inside.explain(new[0], 0)) == str(plain.explain(given[0], 0))
    assert str(inside.feature_importance(new)) == str(plain.feature_importance(given))
    assert list(inside.top_features(30)) == list(plain.top_features(30))


@pytest.mark.parametrize("maker", [ChainCRF, MEMM])
def test_one_file_holds_words_lists_and_weights(maker: Any, tmp_path: Any) -> None:
    X, y = sentences()
    new, _ = sentences(8, seed=1)
    model = maker(features=RICH).fit(X, y)
    model.save(tmp_path / "names.crfield")
    for mmap in (False, True):
        again = load(tmp_path / "names.crfield", mmap=mmap)
        assert type(again) is maker
        for one, other in zip(model.predict_proba(new), again.predict_proba(new), strict=True):
            assert np.array_equal(one, other)
        assert again.features.get_params() == RICH.get_params()
        assert again.features.lexicons["low"].ignore_case
        assert stored(again) == stored(model)
        assert np.array_equal(clone(again).fit(X, y).coef_, model.coef_), "it can be trained again as it is"


@pytest.mark.parametrize("maker", [LatentDynamicCRF, SemiMarkovCRF, HiddenCRF])
def test_other_models_read_sentences_too(maker: Any) -> None:
    X, y = sentences()
    y = [labels[0] for labels in y] if maker is HiddenCRF else y
    model = maker(features=RICH, tol=1e-2).fit(X, y)
    again = load(io.BytesIO(stored(model)))
    assert again.features.get_params() == RICH.get_params()
    assert str(again.predict(X)) == str(model.predict(X))
    assert stored(again) == stored(model)


def test_searches_reach_the_options_of_the_features() -> None:
    X, y = sentences()
    search = GridSearchCV(ChainCRF(features=TextFeatures()), {"features__word": [0, 1], "l2": [1.0]}, cv=2).fit(X, y)
    assert set(search.best_params_) == {"features__word", "l2"}
    folds = ChainCRFCV(ChainCRF(features=RICH), l2s=[1.0, 0.1], cv=2).fit(X, y)
    assert folds.predict(X).shape == (len(X),)
    assert load(io.BytesIO(stored(folds))).predict(X).shape == (len(X),)


def test_it_learns_on_and_from_disk(tmp_path: Any) -> None:
    X, y = sentences()
    whole = ChainCRF(features=TextFeatures()).fit(X, y)
    dataset = encode_dataset([(X[:9], y[:9]), (X[9:], y[9:])], tmp_path / "data", features=TextFeatures())
    disk = load(io.BytesIO(stored(ChainCRF(solver="lbfgs").fit(dataset))))
    assert [one.tolist() for one in disk.predict(X)] == [one.tolist() for one in whole.predict(X)]
    assert isinstance(disk.features, TextFeatures)
    with pytest.raises(InputError, match="first part only"):
        encode_dataset([(X, y)], tmp_path / "more", features=RICH)
    part = ChainCRF(features=RICH).partial_fit(X[:9], y[:9])
    columns = part.column_model("").layout.n_columns
    assert part.partial_fit(X[9:], y[9:]).column_model("").layout.n_columns > columns


def test_streams_look_back_only() -> None:
    X, y = sentences()
    back = TextFeatures(
        word=(-2, 0), short_shape=0, flags=0, other=(-1,), borders=0, conjunctions=[("word[-1]", "tag")]
    )
    model = ChainCRF(features=back, boundaries=False).fit(X, y)
    sequence = max(X, key=len)
    stream = model.stream()
    for t, row in enumerate(sequence):
        prefix = model.predict_proba([sequence[: t + 1]])[0][-1]
        assert stream.push(row).probabilities == pytest.approx(prefix)
    with pytest.raises(InputError, match="TextFeatures may look 2 steps ahead"):
        ChainCRF(features=TextFeatures()).fit(X, y).stream()


def test_columns_by_number() -> None:
    rows = TokenColumns.from_sequences([[("La", "gold", "DA"), ("Paz", "gold", "NP")]])
    features = TextFeatures(columns={"tag": 2, "word": 0}, conjunctions=[("tag", "tag[+1]")])
    names = features.transform(rows)[0][0]
    assert {"word=La", "tag=DA", "tag|tag[+1]=DA|NP"} <= set(names)
    assert not any("gold" in name for name in names)
    with pytest.raises(ShapeError, match="reads column 2, but tokens have 2"):
        features.transform([[("La", "DA")]])
    for columns in ({"word": -1}, {"word": True}, {"word": "0"}, {"tag": 0}, "word", 3):
        with pytest.raises(InputError, match="columns must"):
            TextFeatures(columns=columns).fit([["a"]])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [{"word": 2**63}, {"word": (2000,)}, {"borders": 5000}, {"prefixes": (10**9,)}, {"conjunctions": 5}]
    + [{"conjunctions": [("word[+99999999]", "word")]}, {"conjunctions": [("a",)] * 2000}, {"ignore_case": 3}],
)
def test_options_out_of_all_measure(options: Any) -> None:
    with pytest.raises(InputError, match=next(iter(options))[:11]):
        TextFeatures(**options).transform([["a"]])


def test_what_cannot_stand_together() -> None:
    X, y = sentences(4)
    with pytest.raises(InputError, match="features and a template"):
        ChainCRF(features=TextFeatures(), template="U00:%x[0,0]").fit(X, y)
    with pytest.raises(InputError, match="leave features out"):
        ChainCRF(features=TextFeatures(), label_functions=[lambda a, b, x, t: 1.0]).fit(X, y)
    for wrong in ("text", TextFeatures, 3):
        with pytest.raises(InputError, match="must be a transformer"):
            ChainCRF(features=wrong).fit(X, y)
    with pytest.raises(FeatureError, match="expected a list of words"):
        ChainCRF(features=TextFeatures()).fit(["a b"], [["N"]])
    with pytest.raises(FeatureError, match=r"features=TextFeatures\(\)"):
        ChainCRF().fit([["a", "b"]], [["N", "N"]])


class Halves:
    """A transformer of the user's own."""

    def fit(self, X: Any, y: Any = None) -> Halves:
        return self

    def transform(self, X: Any) -> Any:
        return [[[word[:1]] for word, _ in x] for x in X]


def test_features_of_ones_own_work_but_cannot_be_saved() -> None:
    X, y = sentences(6)
    model = ChainCRF(features=Halves()).fit(X, y)
    assert model.predict(X).shape == (6,)
    with pytest.raises(InputError, match="class Halves cannot be saved"):
        model.save(io.BytesIO())


def test_sensor_features_inside() -> None:
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(n, 3)) + np.repeat(rng.integers(0, 2, n // 20), 20)[:, None] for n in (200, 300, 160)]
    features = SensorFeatures(rate=20.0, measures=("mean", "deviation"), contexts=(3,))
    y = [[str(v > 0.5) for v in x.reshape(-1, 20, 3).mean((1, 2))] for x in X]
    model = ChainCRF(features=features, standardize=True).fit(X, y)
    again = load(io.BytesIO(stored(model)))
    assert all(np.array_equal(a, b) for a, b in zip(again.predict_proba(X), model.predict_proba(X), strict=True))
    assert again.top_features(1)[0].name == model.top_features(1)[0].name
    sensors = SensorFeatures(sensors={"a": 5.0, "b": crfield.features.sensors.measures.Sensor(2.0, ("u",))})
    two = sensors.fit([{"a": np.zeros((10, 2)), "b": np.zeros((4, 1))}])
    back = transformer_from_state(*two.state())
    assert back.get_feature_names_out().tolist() == two.get_feature_names_out().tolist()


@pytest.mark.parametrize("name", ["text", "sensors"])
def test_hostile_states(name: str) -> None:
    """Any edit is refused by the one error, or gives features that work."""
    rng = random.Random(0)
    data: Any = [[("w00", "w"), ("w01", "w")]]
    made: Any = clone(RICH).fit(data)
    if name == "sensors":
        data = [np.zeros((60, 2))]
        made = SensorFeatures(rate=10.0, measures=("mean", "bands"), contexts=(3,), lags=(0, 2)).fit(data)
    header, arrays = made.state()
    refused = 0
    for _ in range(400):
        new, changed = copy.deepcopy(header), {key: array.copy() for key, array in arrays.items()}
        edit_header(new, rng) if rng.random() < 0.6 or not changed else edit_arrays(changed, rng)
        try:
            found = transformer_from_state(new, changed)
        except ModelFileError:
            refused += 1
            continue
        with suppress(InputError, ShapeError, FeatureError, NotFittedError):  # options for other data
            found.transform(data)
    assert refused > 100


TEMPLATE = "# words\nU00:%x[0,0]\nU01:%x[0,1]\nB\n"


@pytest.mark.parametrize("maker", [ChainCRF, MEMM, LatentDynamicCRF, SemiMarkovCRF])
def test_a_template_as_a_path_is_its_text(maker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = sentences(8)
    monkeypatch.chdir(tmp_path)
    Path("words.template").write_text("\ufeff" + TEMPLATE)
    Path("Unigrams").write_text(TEMPLATE)
    plain = maker(template=TEMPLATE, max_iter=20).fit(X, y)
    for path in ("words.template", Path("words.template"), str(tmp_path / "words.template"), "Unigrams"):
        model = maker(template=path, max_iter=20).fit(X, y)
        assert model.template == path
        assert model.coef_.tobytes() == plain.coef_.tobytes()
        again = load(io.BytesIO(stored(model)))
        assert again.template == TEMPLATE, "the file holds the text, not the path"
    Path("words.template").unlink()
    assert again.predict(X).shape == model.predict(X).shape == (8,)


def test_templates_that_are_neither_text_nor_file(tmp_path: Path) -> None:
    X, y = sentences(4)
    for wrong in ("no such file", "words.tmpl", "a\0b", "x" * 5000, str(tmp_path)):
        with pytest.raises(TemplateError, match="neither the text of a template, whose lines begin with U, B or #"):
            ChainCRF(template=wrong).fit(X, y)
    with pytest.raises(FileNotFoundError):
        ChainCRF(template=tmp_path / "none").fit(X, y)
    with pytest.raises(InputError, match="text of one, the path of its file"):
        ChainCRF(template=3).fit(X, y)  # type: ignore[arg-type]
    (tmp_path / "bad.template").write_text("X00")
    with pytest.raises(TemplateError, match="template line 1"):
        ChainCRF(template=tmp_path / "bad.template").fit(X, y)
    for text in ("B", "U00", "U00:%x[0,0]"):
        assert ChainCRF(template=text).fit(X, y).predict(X).shape == (4,)
    file = stored(ChainCRF(template="B").fit(X, y))
    assert load(io.BytesIO(file)).template == "B\n", "never read as a path when it is trained again"


def test_a_template_as_a_path_for_data_on_disk(tmp_path: Path) -> None:
    X, y = sentences(8)
    (tmp_path / "t").write_text(TEMPLATE)
    dataset = encode_dataset([(X, y)], tmp_path / "data", template=tmp_path / "t")
    assert dataset.template == TEMPLATE
