"""Columns of readings: which describe a place, what those that do not are, and recordings taken to another place."""

from __future__ import annotations

import numpy as np
import pytest

import crfield
from crfield import ChainCRF, PlaceShift, ReadingFeatures, Readings
from crfield.errors import FeatureError, InputError, ModelFileError, NotFittedError, ShapeError

RADII = (2.0, 10.0)


def recording(n: int = 80, *, seed: int = 0, senders: int = 4, phase: bool = True) -> Readings:
    rng = np.random.default_rng(seed)
    who = rng.permutation(np.arange(n) % senders)
    who[10:30] = 1  # a stretch of one sender
    return Readings(
        np.cumsum(np.round(rng.exponential(0.7, n), 2)),
        rng.normal(size=(n, 3)),
        who,
        np.round(2 * rng.normal(-60.0, 4.0, n)) / 2,  # ties
        rng.uniform(0, 2 * np.pi, n) if phase else None,
        rng.integers(0, 3, n) if phase else None,
    )


ONE = recording()
ALL = ReadingFeatures(radii=RADII).fit([ONE])
NAMES = ALL.get_feature_names_out().tolist()
TABLE = ALL.transform([ONE])[0]


def column(name: str) -> np.ndarray:
    return TABLE[:, NAMES.index(name)]


# ---------------------------------------------------------------------------------------------------------- the marks


def test_the_mark_of_a_column_is_whether_another_place_changes_it() -> None:
    """Exchange, strengths and phases, each alone and all at once: marked columns change, the others do not."""
    places = [
        PlaceShift(strength=0.0, phase=False, random_state=1),
        PlaceShift(order=(0, 1, 2, 3), phase=False, random_state=2),
        PlaceShift(order=(0, 1, 2, 3), strength=0.0, random_state=3),
        *(PlaceShift(random_state=k) for k in range(4, 8)),
    ]
    changed = np.zeros(len(NAMES), dtype=bool)
    for place in places:
        moved = ALL.transform(place.fit_transform([ONE]))[0]
        gap = np.abs(moved - TABLE)
        assert gap[:, ~ALL.describes_place_].max() < 1e-12
        changed |= gap.max(axis=0) > 1e-6
    assert [name for name, one in zip(NAMES, changed) if one] == [
        name for name, one in zip(NAMES, ALL.describes_place_) if one
    ]
    assert 0 < ALL.describes_place_.sum() < len(NAMES)


def test_those_that_travel_are_the_same_alone() -> None:
    only = ReadingFeatures(radii=RADII, travels=True).fit([ONE])
    assert only.get_feature_names_out().tolist() == [n for n, p in zip(NAMES, ALL.describes_place_) if not p]
    np.testing.assert_array_equal(only.transform([ONE])[0], TABLE[:, ~ALL.describes_place_])
    more = recording(seed=1, senders=7)
    assert only.transform([more])[0].shape == (80, only.n_features_out_)
    with pytest.raises(InputError, match=r"sender 6, fit met 0 … 3.*travels=True"):
        ALL.transform([more])


def test_the_others_are_those_of_the_guide() -> None:
    from crfield.features.sensors.readings import reading_columns

    table, names = reading_columns(
        ONE.seconds, ONE.values, ONE.sender, ONE.strength, names=("x", "y", "z"), n_senders=4, radii=RADII
    )
    assert NAMES[: len(names)] == names
    np.testing.assert_array_equal(TABLE[:, : len(names)], table)
    assert len(set(NAMES)) == len(NAMES)


# ---------------------------------------------------------------------------------------- columns, reading by reading


def test_columns_about_a_reading_are_what_a_slow_program_finds() -> None:
    t, radius = 41, 10.0
    who, strength, seconds = ONE.sender, ONE.strength, ONE.seconds
    level = strength - np.array([strength[who == k].mean() for k in who])
    own = np.flatnonzero(who == who[t])
    last = own[own < t][-1]
    near = np.abs(seconds - seconds[t]) <= radius + 1e-9
    past, future = near & (seconds <= seconds[t]), near & (seconds >= seconds[t])
    assert column("strength, own scale")[t] == pytest.approx(level[t])
    weaker, equal = (strength[own] < strength[t]).mean(), (strength[own] == strength[t]).mean()
    assert column("strength, own rank")[t] == pytest.approx(weaker + equal / 2)
    assert column("strength change since the sender's last")[t] == pytest.approx(strength[t] - strength[last])
    assert column("time since the sender's last")[t] == pytest.approx(np.log1p(seconds[t] - seconds[last]))
    other = np.flatnonzero(who[:t] != who[t])[-1]
    assert column("time since another sender")[t] == pytest.approx(np.log1p(seconds[t] - seconds[other]))
    assert column("y, usual of the sender")[t] == pytest.approx(ONE.values[own, 1].mean())
    usual = np.array([ONE.values[who == k, 1].mean() for k in who])
    assert column("y, usual of the senders, ±10s")[t] == pytest.approx(usual[near].mean())
    turned = usual[future].mean() - usual[past].mean()
    assert column("y, usual of the senders after less before, ±10s")[t] == pytest.approx(turned)
    shares = np.bincount(who[near], minlength=4) / near.sum()
    assert column("senders, ±10s")[t] == (shares > 0).sum()
    heard = shares[shares > 0]
    assert column("evenness of senders, ±10s")[t] == pytest.approx(-(heard * np.log(heard)).sum())
    assert column("share of the sender, ±10s")[t] == pytest.approx(shares[who[t]])
    switched = np.append(False, who[1:] != who[:-1])
    assert column("changes of sender, ±10s")[t] == pytest.approx(switched[near].mean())
    before, after = (np.bincount(who[rows], minlength=4) / rows.sum() for rows in (past, future))
    assert column("senders after as before, ±10s")[t] == pytest.approx(np.minimum(before, after).sum())
    assert column("senders as usual, ±10s")[t] == pytest.approx(
        np.minimum(shares, np.bincount(who, minlength=4) / len(who)).sum()
    )
    means = {k: level[near & (who == k)].mean() for k in set(who[near].tolist())}
    above = [mean > means[who[t]] for k, mean in means.items() if k != who[t]]
    assert column("stronger senders, ±10s")[t] == pytest.approx(np.mean(above))
    assert column("strength deviation, own scale, ±10s")[t] == pytest.approx(np.hypot(level[near].std(), 0.1))
    heard_before = {k: np.flatnonzero(who[:k] == who[k]) for k in np.flatnonzero(near)}
    steps = [abs(strength[k] - strength[rows[-1]]) for k, rows in heard_before.items() if len(rows)]
    assert column("strength change, ±10s")[t] == pytest.approx(np.mean(steps))


def test_phases_turn_between_readings_of_one_sender_on_one_channel() -> None:
    assert ONE.phase is not None
    assert ONE.channel is not None
    turns = np.full(80, np.nan)
    for k in range(80):
        same = np.flatnonzero((ONE.sender[:k] == ONE.sender[k]) & (ONE.channel[:k] == ONE.channel[k]))
        if len(same):
            turns[k] = 1 - np.cos(ONE.phase[k] - ONE.phase[same[-1]])
    np.testing.assert_allclose(column("phase turn since the sender's last"), np.nan_to_num(turns), atol=1e-12)
    near = np.abs(ONE.seconds - ONE.seconds[41]) <= 10.0
    assert column("phase turn, ±10s")[41] == pytest.approx(np.nanmean(turns[near]))
    without = ReadingFeatures(radii=RADII).fit([recording(phase=False)])
    assert not [name for name in without.get_feature_names_out() if "phase" in name]
    with pytest.raises(InputError, match="recording 0 has a phase, the first one of fit had none"):
        without.transform([ONE])


def test_recordings_of_one_reading_and_of_none() -> None:
    for part in (ONE[:1], ONE[:0]):
        table = ALL.transform([part])[0]
        assert table.shape == (len(part), len(NAMES))
        assert np.isfinite(table).all()


# ------------------------------------------------------------------------------------------------------ another place


def test_a_place_is_one_for_all_recordings_and_takes_labels_along() -> None:
    X = [ONE, recording(30, seed=1)]
    place = PlaceShift(silent=2, random_state=5).fit(X)
    assert not (place.order_ == np.arange(4)).any()
    assert sorted(place.order_.tolist()) == [0, 1, 2, 3]
    assert np.abs(place.strength_).max() <= 6.0
    y = [[f"{k}" for k in one.sender] for one in X]
    for one, moved, labels in zip(X, place.transform(X), place.labels(X, y), strict=True):
        heard = ~place.silent_[one.sender]
        assert 0 < heard.sum() < len(one)
        np.testing.assert_array_equal(moved.sender, place.order_[one.sender[heard]])
        np.testing.assert_array_equal(moved.values, one.values[heard])
        np.testing.assert_allclose(moved.strength, one.strength[heard] + place.strength_[one.sender[heard]])
        assert labels.tolist() == [f"{k}" for k in one.sender[heard]]
    again = PlaceShift(silent=2, random_state=5).fit(X)
    np.testing.assert_array_equal(again.strength_, place.strength_)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"order": (0, 0)}, "order must be the numbers 0 … of the senders in another order"),
        ({"order": (1, 0)}, "order must be of all 4 senders"),
        ({"strength": -1.0}, "strength must be a finite number ≥ 0"),
        ({"strength": (1.0,)}, "strength must be of all 4 senders"),
        ({"silent": 4}, "silent must leave one of the 4 senders"),
    ],
)
def test_places_that_are_none(options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        PlaceShift(**options).fit([ONE])


def test_what_cannot_be_moved_or_read() -> None:
    with pytest.raises(NotFittedError):
        PlaceShift().transform([ONE])
    with pytest.raises(NotFittedError):
        ReadingFeatures().transform([ONE])
    place = PlaceShift().fit([recording(senders=2)])
    with pytest.raises(InputError, match="recording 0 has the sender 3, fit met 0 … 1"):
        place.transform([ONE])
    with pytest.raises(InputError, match="recording 0 has 80 readings and 2 labels"):
        PlaceShift().fit([ONE]).labels([ONE], [["a", "b"]])
    with pytest.raises(InputError, match="recording 0 is of type ndarray"):
        ReadingFeatures().fit([np.zeros((3, 2))])
    with pytest.raises(InputError, match="radii must be"):
        ReadingFeatures(radii=(0.0,)).fit([ONE])
    with pytest.raises(ShapeError, match="3 values but 2 names"):
        ReadingFeatures(axes=("a", "b")).fit([ONE])
    with pytest.raises(ShapeError, match="must have 3 values, got 1"):
        ALL.transform([Readings([0.0], [[1.0]], [0], [-60.0], [0.0], [0.0])])
    with pytest.raises(InputError, match="recording 1 has no phase"):
        ReadingFeatures().fit([ONE, recording(phase=False)])
    far = Readings([0.0], [[1.0]], [10**9], [-60.0])
    with pytest.raises(InputError, match=r"senders are numbered 0 … 1,000,000,000, more than 1,000\."):
        ReadingFeatures().fit([far])
    assert ReadingFeatures(travels=True).fit([far]).n_features_out_ > 50
    for wrong in ({"sender": [0.5]}, {"sender": [-1]}, {"sender": ["a"]}, {"strength": [np.nan]}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            Readings(**{"seconds": [0.0], "values": [[1.0]], "sender": [0], "strength": [-60.0], **wrong})
    with pytest.raises(ShapeError, match=r"strength of 2 readings must be \(2,\)"):
        Readings([0.0, 1.0], [[1.0], [2.0]], [0, 0], [-60.0])


# ------------------------------------------------------------------------------------------------------------- models


def test_features_inside_a_model_go_into_its_file(tmp_path) -> None:
    X = [recording(40, seed=k) for k in range(3)]
    y = [np.where(one.values[:, 0] > 0, "up", "down").tolist() for one in X]
    model = ChainCRF(features=ReadingFeatures(radii=(2.0,), travels=True), standardize=True, l2=1.0).fit(X, y)
    assert model.top_features(1)[0].name in NAMES, "columns have the names of the features"
    model.save(tmp_path / "m.crfield")
    again = crfield.load(tmp_path / "m.crfield")
    moved = PlaceShift().fit_transform(X)
    for one, other, third in zip(model.predict(X), again.predict(X), again.predict(moved), strict=True):
        assert list(one) == list(other) == list(third)
    with pytest.raises(FeatureError, match=r"sequence 0 is a Readings.*features=ReadingFeatures\(\)"):
        ChainCRF().fit(X, y)
    header = ALL.state()[0]
    for wrong in (
        {"options": 3},
        {"fitted": [["x"], 3]},
        {"fitted": [[], 3, True]},
        {"fitted": [["x"], -1, True]},
        {"fitted": [["x"], 2000, True]},
        {"fitted": [["x"] * 90_000, 1, True]},
    ):
        with pytest.raises(ModelFileError):
            ReadingFeatures.from_state({**header, **wrong}, {})
