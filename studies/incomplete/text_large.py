"""Words of names at half the size of the paper: 2,500 sentences without tags, 3,000 with them.

The same methods as in `incomplete_text`, those that the paper has and our best, at the paper's ratio of sentences
without and with parts of speech. Its 11,000 sentences are more than the corpus holds. With so many tags known, BL1
sees more than half of all sentences, and little is left to gain from the others.
"""

from __future__ import annotations

from studies.framework import Study
from studies.incomplete.rows import BL1, BL2, BL3, OURS
from studies.incomplete.text import HCRF, LEARNT, WINDOW, cases, claims, report, run

_EVERYONE = (OURS, BL1, BL2, BL3)
METHODS = (
    *(f"{who}, mix" for who in _EVERYONE),
    *(f"{who}, exp" for who in _EVERYONE),
    LEARNT,
    HCRF,
    *(f"{who}, mix, left" for who in _EVERYONE),
    WINDOW,
    f"{BL1}, joint, window",
)

STUDY = Study(
    {
        "tasks": ["ner"],
        "seeds": [0, 1, 2, 3, 4],
        "n_hidden": 2_500,
        "n_observed": 3_000,
        "n_test": 1_000,
        "l2": [1.0],
        "methods": list(METHODS),
    },
    {
        "tasks": ["ner"],
        "without data": ["phrases"],
        "seeds": [0, 1],
        "n_hidden": 250,
        "n_observed": 300,
        "n_test": 100,
        "l2": [1.0],
        "methods": list(METHODS),
    },
    cases,
    run,
    report,
    claims,
)
