"""Specifications of the literature expand to the numbers of features that it gives, before there are data."""

from __future__ import annotations

import numpy as np

from crfield.features.relational import Catalogue, Specification
from crfield.features.relational.examples import SOCCER, TAG_LARGE, TAG_SMALL

TEAMS = {"us": [f"u{k}" for k in range(5)], "them": [f"t{k}" for k in range(5)]}


def tag(text: str) -> Catalogue:
    return Specification.parse(text).expand(labels=3, agents=3)


def test_the_small_set_of_tag_has_324_features() -> None:
    catalogue = tag(TAG_SMALL)
    assert catalogue.counts == {
        "positions": 36,
        "velocity": 18,
        "velthr": 108,
        "chasing": 36,
        "disttrans": 54,
        "dclosest": 18,
        "velcomp": 36,
        "straight": 18,
    }
    assert catalogue.n_candidates == len(catalogue) == 324


def test_the_large_set_of_tag_has_1200_features() -> None:
    catalogue = tag(TAG_LARGE)
    assert list(catalogue.counts.values()) == [3, 9, 36, 18, 18, 18, 180, 918]
    assert (catalogue.n_candidates, catalogue.n_columns, len(catalogue.blocks)) == (1200, 194, 23)


def test_two_teams_and_a_ball_have_2_718_381_features() -> None:
    catalogue = Specification.parse(SOCCER).expand(labels=3, teams=TEAMS, objects=["ball"])
    assert (catalogue.n_candidates, catalogue.n_columns) == (2_718_381, 302_067)
    assert catalogue.n_expressions < 250
    assert catalogue.name(2_718_380) == "possession(t4,ball) all30 >0.5 | 2→2"


def test_every_feature_has_a_name_of_its_own() -> None:
    for text in (TAG_SMALL, TAG_LARGE):
        catalogue = tag(text)
        names = [catalogue.name(k) for k in range(len(catalogue))]
        assert len(set(names)) == len(names)
        places = catalogue.places()
        for k in (0, 17, 100, len(names) - 1):
            assert names[k].startswith(catalogue.column_name(int(places.column[k])))
        assert (np.diff(places.column) >= 0).all()
        assert ((places.previous >= 0) == (catalogue.link[places.column] == 1)).all()


def test_the_sketch_with_signs_for_words_is_the_same() -> None:
    """Older spellings: lt, min_, and & | ~ for the words."""
    spelt = """
    d trans : (lt(dist(a,b),240) | lag(lt(dist(a,b),240),1)) & ~lag(lt(dist(a,b),240),2)
            | for a in robots, b in robots | where a<b | test >,<= 0.5
    c state : delta(min_(dist(a,b) for b in robots if b!=a)) | for a in robots | pow 1,2
    """
    rng = np.random.default_rng(0)
    moving = rng.normal(0, 300, (40, 3, 2))
    new = tag(TAG_SMALL)
    old = Specification.parse(spelt).expand(labels=3, agents=3)
    names = [new.column_name(k).replace("disttrans", "d").replace("dclosest", "c") for k in range(new.n_columns)]
    same = np.array([names.index(old.column_name(k)) for k in range(old.n_columns)])
    # signs of the order of two agents in a difference may turn, lengths do not
    assert np.array_equal(
        old.on(moving, rate=1.0).chunk(np.arange(old.n_columns)), new.on(moving, rate=1.0).chunk(same)
    )
