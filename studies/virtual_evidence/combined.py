"""Is virtual evidence boosting better over all experiments together? The test of the paper's section 5.2.

Error bars of single experiments overlap, says the paper, but "our approach is significantly (0.05 level) better than
its competitors when we evaluate the combination of the different experiments" (Liao, Choudhury, Fox & Kautz 2007). It
does not say which test. Here each experiment is a paired t-test of the seeds, one-sided, and the tests are combined
by Stouffer's method, every experiment with the same weight:

    z_e = Φ⁻¹(1 − p_e)        z = Σ_e z_e / √E        p = 1 − Φ(z)

The experiments are the four studies beside this file, whose cases this study runs; accuracy is by MAP where a method
has it. A rival stands in the experiments in which the paper has it: BRF in three, likelihood in two,
pseudo-likelihood in three.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.report.findings import Claim, Findings, mean_interval, paired_interval
from studies.framework import Case, Outcome, Outcomes, Settings, Study, by_seed, where
from studies.virtual_evidence import activities, chains, contexts, orders

PARTS: dict[str, Study] = {
    "figure 1a": chains.STUDY,
    "figure 1b": orders.STUDY,
    "table 1": activities.STUDY,
    "table 2": contexts.STUDY,
}
FORMS = {"paper": chains.PAPER, "ours": chains.EXACT}  # whose claim: which form of virtual evidence boosting
RIVALS: dict[str, dict[str, str]] = {  # rival: its name in every part that has it
    "BRF": {"figure 1a": chains.LINEAR, "figure 1b": chains.LINEAR, "table 1": activities.FIELD},
    "ML": {"figure 1b": chains.ML, "table 1": activities.ML},
    "MPL": {"figure 1b": chains.MPL, "table 1": activities.MPL, "table 2": contexts.MPL},
}
LEVEL = 0.05


def cases(settings: Settings) -> list[Case]:
    """The cases of all parts; a case says first which part it is of."""
    return [{"part": part, **case} for part, study in PARTS.items() for case in study.cases(settings["parts"][part])]


def run(settings: Settings, case: Case) -> Outcome:
    """What the part's own study finds."""
    part = case["part"]
    inner = {**settings["parts"][part], "n_jobs": settings["n_jobs"]}
    return PARTS[part].run(inner, {name: value for name, value in case.items() if name != "part"})


def right(outcome: Outcome, name: str) -> float:
    """Right labels of a method, by MAP if it has a joint model.

    >>> right({"BRF": [None, 0.5]}, "BRF"), right({"VEB": {"MAP": [0.5, 0.75, 0.25]}}, "VEB")
    (0.5, 0.625)
    """
    told: Any = outcome[name]
    if isinstance(told, dict):
        return float(np.mean((told["MAP"] if "MAP" in told else told["MPM"])[:2]))
    return float(told[1] if told[0] is None else told[0])


def stouffer(p_values: list[float]) -> float:
    """One p-value of independent one-sided tests.

    >>> round(stouffer([0.05, 0.05]), 4), round(stouffer([0.5, 0.5, 0.5]), 4)
    (0.01, 0.5)
    """
    from scipy.stats import norm

    return float(norm.sf(norm.isf(p_values).sum() / np.sqrt(len(p_values))))


def _pairs(outcomes: Outcomes, form: str, rival: str) -> dict[str, tuple[list[float], list[float]]]:
    """Part → accuracies of a form and of a rival, seed by seed."""
    return {
        part: (
            by_seed(where(outcomes, part=part), lambda outcome: right(outcome, form)),
            by_seed(where(outcomes, part=part), lambda outcome, own=name: right(outcome, own)),  # type: ignore[misc]
        )
        for part, name in RIVALS[rival].items()
    }


def _p_value(one: list[float], other: list[float]) -> float:
    """Of the claim that one is above the other; ½ where nothing differs or there is one seed."""
    from scipy.stats import ttest_rel

    if len(one) < 2 or np.ptp(np.subtract(one, other)) == 0:
        return 0.5
    return float(np.clip(ttest_rel(one, other, alternative="greater").pvalue, 1e-12, 1 - 1e-12))


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """A line for every form, rival and part, and one for the combination."""
    rows: list[tuple[Any, ...]] = []
    for form in FORMS.values():
        for rival in RIVALS:
            pairs = _pairs(outcomes, form, rival)
            tests = {part: _p_value(*pair) for part, pair in pairs.items()}
            rows += [
                (f"{form} − {rival}, {part}", mean_interval(pair[0]), paired_interval(*pair), f"{tests[part]:.4f}")
                for part, pair in pairs.items()
            ]
            rows.append((f"{form} − {rival}, combined", None, None, f"{stouffer(list(tests.values())):.4f}"))
    return Findings(
        "Virtual evidence boosting against its rivals, all experiments together",
        ("", "right labels", "difference", "p, one-sided"),
        tuple(rows),
        notes=("paired t-tests over seeds, combined by Stouffer's method; right labels by MAP, of BRF by MPM",),
    )


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """That a form is above each rival at the level of 5 %; open between the two tails."""
    claims = []
    for whose, form in FORMS.items():
        for rival in RIVALS:
            p = stouffer([_p_value(*pair) for pair in _pairs(outcomes, form, rival).values()])
            holds = True if p < LEVEL else False if p > 1 - LEVEL else None
            claims.append(Claim(f"{whose}: {form} above {rival}, experiments combined", holds, f"p = {p:.4f}"))
    return claims


STUDY = Study(
    {"seeds": [1, 2, 3, 4, 5, 6], "parts": {part: dict(study.full) for part, study in PARTS.items()}},
    {
        "seeds": [1, 2, 3],
        "parts": {
            "figure 1a": {"p": [0.95], "seeds": [1, 2, 3], "folds": 1, "n_chains": 5, "length": 400},
            "figure 1b": {"k": [2], "seeds": [1, 2, 3], "folds": 1, "n_chains": 4, "length": 300, "bethe": []},
            "table 1": {"features": [12], "seeds": [1, 2, 3], "folds": 1, "n_days": 4},
            "table 2": {"seeds": [1, 2, 3], "folds": 1, "n_episodes": 3, "length": 60},
        },
    },
    cases,
    run,
    report,
    claims,
)
