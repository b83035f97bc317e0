"""Which chord goes with the note C? A maximum-entropy model, fact by fact: ``python examples/chords.py``.

Forty notes C with the note that follows and the chord that was played (after Berger, Della Pietra & Della Pietra 1996
in the notes of a tutorial on conditional random fields for music). Each model knows only the facts that its feature
functions state, and is otherwise as undecided as it can be. The last one is trained by three solvers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crfield import MaxentClassifier

CHORDS = ("Cmaj", "Cmin", "Abmaj", "Amin", "Fmaj", "Fmin")
BEFORE_E, BEFORE_G = (5, 1, 1, 1, 1, 1), (2, 6, 6, 6, 4, 6)  # how often each chord was played
Function = Callable[[tuple[str, str], str], bool]


def sample() -> tuple[list[tuple[str, str]], list[str]]:
    """Notes with their followers, and chords: Cmaj or Fmaj in 3 of 10 cases, Cmaj in half of those before E."""
    notes, chords = [], []
    for follower, counts in (("E", BEFORE_E), ("G", BEFORE_G)):
        for chord, count in zip(CHORDS, counts, strict=True):
            notes += [("C", follower)] * count
            chords += [chord] * count
    return notes, chords


def facts() -> dict[str, Function]:
    """The facts of the tutorial as functions of an observation and a chord."""
    return {
        "some chord": lambda o, y: True,
        "C with Cmaj or Fmaj": lambda o, y: o[0] == "C" and y in ("Cmaj", "Fmaj"),
        "C before E with Cmaj": lambda o, y: o == ("C", "E") and y == "Cmaj",
    }


def model_of(n_facts: int, *, solver: str = "newton") -> MaxentClassifier:
    """The model that knows the first facts, without penalty, trained to the last digit."""
    known = dict(list(facts().items())[:n_facts])
    return MaxentClassifier(known, l2=0.0, solver=solver, tol=1e-11 if solver == "sgd" else 1e-18, max_iter=5000)


def violation(model: MaxentClassifier) -> float:
    """The largest difference of an expected and an observed feature frequency."""
    notes, chords = sample()
    return max(abs(c.expected - c.observed) for c in model.feature_counts(notes, chords)) / len(notes)


def main() -> None:
    """Print the distributions and how well the constraints are met."""
    notes, chords = sample()
    print(f"{'facts':<24}{'note':<12}" + "".join(f"{chord:>8}" for chord in CHORDS))
    for n_facts, name in enumerate(facts(), start=1):
        model = model_of(n_facts).fit(notes, chords)
        places = [model.classes_.tolist().index(chord) for chord in CHORDS]
        for note in [("C", "E"), ("C", "G")] if n_facts == 3 else [("C", "G")]:
            row = model.predict_proba([note])[0, places]
            shown = f"{note[0]} before {note[1]}" if n_facts == 3 else note[0]
            print(f"{'+ ' * (n_facts > 1) + name:<24}{shown:<12}" + "".join(f"{p:8.4f}" for p in row))
    print()
    for solver in ("newton", "lbfgs", "sgd"):
        model = model_of(3, solver=solver).fit(notes, chords)
        weights = np.array2string(model.coef_, precision=6, suppress_small=True)
        print(f"{solver:<8} largest violation {violation(model):.1e} in {model.n_iter_} steps, weights {weights}")


if __name__ == "__main__":
    main()
