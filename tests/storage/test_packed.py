"""Packed shards beside a data set: the same training, and no cache that is stale, damaged or hostile is ever used."""

from __future__ import annotations

import os
import random
import shutil
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crfield import ChainCRF, EncodedDataset, encode_dataset
from crfield.errors import DataWarning, InputError
from crfield.storage.archive import read_archive, write_archive
from crfield.storage.packed import KEPT, PackedShards
from tests.cases.estimators import as_strings, world

OPTIONS: dict[str, Any] = {"solver": "lbfgs", "tol": 1e-6}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    raw, y = world(24)
    X = as_strings(raw)
    parts = [(X[k : k + 5], y[k : k + 5]) for k in range(0, 24, 5)]
    assert encode_dataset(parts, tmp_path / "data", shard_bytes=800).n_shards >= 3
    return tmp_path / "data"


def fitted(place: Path, packed: bool | None = True, **options: Any) -> ChainCRF:
    return ChainCRF(**{**OPTIONS, **options}).fit(EncodedDataset(place, packed=packed))


def files(place: Path) -> list[Path]:
    return sorted(place.glob("packed/*/*"))


def test_all_ways_of_keeping_give_the_same_bits(place: Path) -> None:
    plain = fitted(place, False)
    assert not (place / "packed").exists()
    small = fitted(place, None)
    assert not (place / "packed").exists(), "so few bytes stay in memory"
    first = fitted(place)
    made = {path: path.stat().st_mtime_ns for path in files(place)}
    assert len(made) == EncodedDataset(place).n_shards
    second = fitted(place)
    assert {path: path.stat().st_mtime_ns for path in files(place)} == made, "nothing is written twice"
    for model in (small, first, second):
        assert model.coef_.tobytes() == plain.coef_.tobytes()
        assert model.n_evaluations_ == plain.n_evaluations_
    assert sorted(path.name for path in place.iterdir() if "shard" not in path.name) == ["dataset.crfield", "packed"]


def test_shards_are_packed_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    shard = EncodedDataset.shard
    monkeypatch.setattr(EncodedDataset, "shard", lambda self, number: read.append(number) or shard(self, number))
    model = fitted(place)
    n = EncodedDataset(place).n_shards
    assert model.n_evaluations_ > 5
    assert sorted(read) == sorted([*range(n)] * 2), "once for the layout, once for packing"
    read.clear()
    fitted(place)
    assert len(read) == n + 1, "the layout, and the first shard to find out which it is"


def test_stochastic_epochs_and_two_threads(tmp_path: Path) -> None:
    raw, y = world(400)
    X = as_strings(raw)
    encode_dataset([(X[k : k + 100], y[k : k + 100]) for k in range(0, 400, 100)], tmp_path / "d", shard_bytes=8_000)
    models = [
        ChainCRF(solver="warm", tol=1e-6, n_jobs=n_jobs).fit(EncodedDataset(tmp_path / "d", packed=packed))
        for packed, n_jobs in ((False, 1), (True, 1), (True, 2), (None, 2))
    ]
    assert len({model.coef_.tobytes() for model in models}) == 1


def test_other_layouts_and_other_packings_have_their_own(place: Path) -> None:
    fitted(place)
    old = files(place)
    fitted(place, feature_pairs="all")
    assert set(old) < set(files(place))
    fitted(place, l2=3.0)
    assert len({path.parent for path in files(place)}) == KEPT
    time.sleep(0.01)
    fitted(place, boundaries=False)
    folders = {path.parent for path in files(place)}
    assert len(folders) == KEPT
    assert old[0].parent in folders, "the one that was not used for longest is removed"


def test_a_cache_of_other_data_is_made_again(place: Path, tmp_path: Path) -> None:
    best = fitted(place).coef_.tobytes()
    made = files(place)
    shutil.copy(made[1], made[0])  # another shard
    assert fitted(place).coef_.tobytes() == best
    archive = read_archive(made[0])
    assert archive.header["number"] == 0
    write_archive(made[0], {**archive.header, "shard": "0" * 32}, dict(archive.arrays))
    assert fitted(place).coef_.tobytes() == best
    write_archive(made[0], {**archive.header, "about": {"packing": "compiled 0"}}, dict(archive.arrays))
    assert fitted(place).coef_.tobytes() == best
    assert read_archive(made[0]).header == archive.header


def test_damage_is_mended_with_a_word(place: Path) -> None:
    best = fitted(place).coef_.tobytes()
    path = files(place)[0]
    good, draw = path.read_bytes(), random.Random(0)
    told = 0
    for turn in range(30):
        bad = bytearray(good)
        if turn < 20:
            bad[draw.randrange(len(bad))] ^= 1 << draw.randrange(8)
        else:
            bad = bad[: draw.randrange(len(bad))]
        path.write_bytes(bytes(bad))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert fitted(place).coef_.tobytes() == best
        told += sum(issubclass(one.category, DataWarning) for one in caught)
        if any(issubclass(one.category, DataWarning) for one in caught):
            assert path.read_bytes() == good, "made again"
    assert told >= 20


def test_a_file_that_changes_during_training_is_found(place: Path) -> None:
    best = fitted(place).coef_.tobytes()
    path, state = files(place)[1], {"done": False}

    def damage(step: Any, weights: Any) -> None:
        if step.n_iter == 3 and not state["done"]:
            state["done"] = True
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(bytes(data))

    with pytest.warns(DataWarning, match="damaged and will be made again"):
        assert fitted(place, callback=damage).coef_.tobytes() == best
    fitted(place, callback=lambda step, weights: shutil.rmtree(place / "packed", ignore_errors=True))


def test_hostile_values_with_right_checksums(place: Path) -> None:
    best = fitted(place).coef_.tobytes()
    path = files(place)[0]
    archive = read_archive(path)
    for name, value in (("row_item", 2**31 - 1), ("row_ptr", -5), ("gold", 77), ("sequence", 10**6), ("active", 9)):
        arrays = {key: array.copy() for key, array in archive.arrays.items()}
        if not len(arrays[name]):
            continue
        arrays[name][len(arrays[name]) // 2] = value
        write_archive(path, archive.header, arrays)
        with pytest.warns(DataWarning, match="damaged"):
            assert fitted(place).coef_.tobytes() == best


def test_a_folder_that_cannot_be_written_to_falls_back(place: Path) -> None:
    best = fitted(place, False).coef_.tobytes()
    (place / "packed").write_text("a file where the folder should be")
    with pytest.warns(DataWarning, match="cannot be kept") as caught:
        assert fitted(place).coef_.tobytes() == best
    assert len(caught) == 1
    EncodedDataset(place).remove_packed()
    assert (place / "packed").exists(), "it is no folder of ours"


def test_removing_and_refusing(place: Path) -> None:
    fitted(place)
    dataset = EncodedDataset(place)
    dataset.remove_packed()
    assert not (place / "packed").exists()
    dataset.remove_packed()
    with pytest.raises(InputError, match="packed"):
        EncodedDataset(place, packed="yes")  # type: ignore[arg-type]


def test_opening_says_whether_a_file_was_looked_through(tmp_path: Path) -> None:
    kept = PackedShards(os.fspath(tmp_path), {"layout": "a"}, ["d0", "d1"])
    kept.write(0, {"x": np.arange(5.0)})
    assert [kept.open(0).checked for _ in range(2)] == [False, False], "so young a file might change unseen"  # type: ignore[union-attr]
    time.sleep(0.06)
    assert [kept.open(0).checked for _ in range(3)] == [False, True, True]  # type: ignore[union-attr]
    kept.write(0, {"x": np.arange(6.0)})
    again = kept.open(0)
    assert again is not None
    assert (again.checked, len(again.arrays["x"])) == (False, 6)
    assert kept.open(1) is None
    kept.ahead(0), kept.ahead(1), kept.ahead(2)
    other = PackedShards(os.fspath(tmp_path), {"layout": "b"}, ["d0"])
    assert other.open(0) is None
