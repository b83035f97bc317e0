"""Verdicts of stored results, judged again without running anything: ``python -m studies.judge_again docs``.

A record of `crfield reproduce` holds the outcome of every case, so when the claims of a study change, or the rule
that decides them, its verdicts are computed again from these. Tables, notes, charts and the numbers beside a claim
stay what the run wrote. Results of `crfield experiment` hold no cases: there a claim that failed is open where the
interval in its text has zero in it.

JSON, text and the pages that show the text or a line of it are written again; the command prints the names of what
has changed.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from crfield.report.findings import Claim, Findings
from crfield.storage.files import read_text, write_text
from studies.catalogue import study_named
from studies.framework import Outcomes, Study
from studies.record import document, summary

_ENDS = re.compile(r"95 % interval ([+-][\d.]+) … ([+-][\d.]+)$")


def claims_of(name: str, told: dict[str, Any]) -> tuple[Claim, ...]:
    """The claims of a stored result as they are judged today."""
    if "cases" in told:
        study = study_named(name)
        found = {one["claim"]: one["found"] for one in told["claims"]}
        judged = study.claims(told["settings"], outcomes_of(study, told))
        return tuple(replace(claim, found=found.get(claim.sentence, claim.found)) for claim in judged)
    return tuple(_from_text(one["claim"], one["holds"], one["found"]) for one in told["claims"])


def outcomes_of(study: Study, told: dict[str, Any]) -> Outcomes:
    """Cases and their outcomes, which a record keeps as one object each."""
    cases = study.cases(told["settings"])
    return [
        (case, {key: value for key, value in row.items() if key not in case})
        for case, row in zip(cases, told["cases"], strict=True)
    ]


def _from_text(sentence: str, holds: bool | None, found: str) -> Claim:
    """A claim of which the words are left.

    >>> print(_from_text("mine above theirs", False, "+0.010, 95 % interval -0.010 … +0.030"))
    open mine above theirs: +0.010, 95 % interval -0.010 … +0.030
    """
    ends = _ENDS.search(found)
    if ends is not None and not holds and float(ends[1]) <= 0 < float(ends[2]):
        holds = None
    return Claim(sentence, holds, found)


def judge_again(path: Path, pages: list[Path]) -> bool:
    """Judge one NAME.json; whether anything has changed."""
    before = read_text(path)
    told: dict[str, Any] = json.loads(before)
    old = Findings(told["title"], ("",), (), tuple(Claim(c["claim"], c["holds"], c["found"]) for c in told["claims"]))
    new = Findings(told["title"], ("",), (), claims_of(path.stem, told))
    judged = new.to_dict()
    now = {**told, "verdict": judged["verdict"], "claims": judged["claims"]}
    if now == told:
        return False
    cases = now.pop("cases", None)
    step = len(before.split("\n")[1]) - len(before.split("\n")[1].lstrip())
    plain = json.dumps(now, indent=step, ensure_ascii=False) + "\n"
    write_text(path, plain if cases is None else document(now, cases))
    text, shown, changed = path.with_suffix(".txt"), "", ""
    if text.exists():
        shown = read_text(text)
        changed = _replaced(shown, old.claims, new.claims)
        if cases is not None:
            changed = changed[: changed.rstrip("\n").rindex("\n\n")] + f"\n\n{summary(new)}\n"
        write_text(text, changed)
    lines = {
        str(claim): str(again) for claim in old.claims for again in new.claims if claim.sentence == again.sentence
    }
    for page in pages:
        written = read_text(page)
        whole = written.replace(shown, changed) if shown else written
        whole = "\n".join(lines.get(line, line) for line in whole.split("\n"))
        if whole != written:
            write_text(page, whole)
    return True


def _replaced(text: str, old: tuple[Claim, ...], new: tuple[Claim, ...]) -> str:
    """The text with the block of claims, which stand line under line, put anew."""
    lines = text.split("\n")
    asked = [claim.sentence for claim in old]
    place = [k for k, line in enumerate(lines) if any(line[5:].startswith(f"{sentence}: ") for sentence in asked)]
    if len(place) != len(old):
        raise ValueError(f"{len(old)} claims are stored, and the text shows {len(place)}.")
    return "\n".join([*lines[: place[0]], *map(str, new), *lines[place[-1] + 1 :]])


def main(folder: str) -> None:
    """Judge every result below a folder of pages."""
    pages = sorted(Path(folder).rglob("*.md"))
    for path in sorted((Path(folder) / "results").glob("*.json")):
        if judge_again(path, pages):
            sys.stdout.write(f"{path.stem}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
