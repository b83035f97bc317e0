"""Ten lengths of training data: figure 3.7 of Vail's thesis.

The worlds, methods and choices of `studies.vail.weak_features`, with ten lengths of the training sequence instead of
four and without the other figures' variations: error, size, strong and weak features of the chosen models.
"""

from __future__ import annotations

from dataclasses import replace

from crfield.report.findings import Claim, Findings
from studies.framework import Outcomes, Settings, Study
from studies.vail import weak_features

LENGTHS = [2**k for k in range(5, 15)]


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """The table of all lengths, and the two charts of figure 3.7."""
    found = weak_features.report(settings, outcomes)
    shown = tuple(chart for chart in found.charts if "3.7" in chart.title)
    return replace(found, title=f"{found.title}; ten lengths", charts=shown)


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """Those that speak of a length."""
    return [claim for claim in weak_features.claims(settings, outcomes) if "T = " in claim.sentence]


STUDY = Study(
    {
        "seeds": list(range(1, 21)),
        "lengths": LENGTHS,
        "copies": [5],
        "max_features": 120,
        "patience": 20,
    },
    {
        "seeds": [1, 2, 3],
        "lengths": [32, 45, 64, 91, 128, 181, 256, 362, 512, 724],
        "copies": [5],
        "max_features": 24,
        "patience": 8,
    },
    weak_features.cases,
    weak_features.run,
    report,
    claims,
)
