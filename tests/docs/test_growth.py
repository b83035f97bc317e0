"""The page of growth: written between its marks, with a row and a line for every curve."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.growth import page
from benchmarks.growth.curve import Curve, decades, grown

PANELS = (
    "steps",
    "labels",
    "active features",
    "threads",
    "longest segment",
    "nodes of a graph",
    "rounds of boosting",
)


def test_the_page_has_every_size_and_its_picture() -> None:
    rows = [line.split(" | ")[0].strip("| ") for line in page.PAGE.read_text(encoding="utf-8").splitlines()]
    assert set(rows) >= {*PANELS, "candidates of selection"}
    assert 10_000 < page.PICTURE.stat().st_size < 200_000


def test_writing_changes_what_is_between_the_marks_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(page, "PAGE", tmp_path / "growth.md")
    monkeypatch.setattr(page, "PICTURE", tmp_path / "growth.svg")
    page.PAGE.write_text(f"before\n\n{page.BEGIN}\nold\n{page.END}\n\nafter\n", encoding="utf-8")
    curves = [
        Curve("steps", "a sum", "steps", 1.0, [10, 100, 1000], [1.0, 3.0, 27.0], "one a step"),
        Curve("threads", "a sum", "threads", -1.0, [1, 2], [2.0, 1.0], clock=True),
    ]
    page.write(curves)
    first = page.PAGE.read_text(encoding="utf-8"), page.PICTURE.read_bytes()
    assert first[0].startswith("before\n\n" + page.BEGIN)
    assert first[0].endswith(page.END + "\n\nafter\n")
    assert "| steps | a sum | 10 … 1,000 | 1 | **0.95** | 0.72 | one a step |" in first[0]
    assert "old" not in first[0]
    assert b"a sum: -1.00 (-1)" in first[1]
    page.write(curves)
    assert page.PICTURE.read_bytes() == first[1]


def test_slopes_of_known_powers() -> None:
    sizes = decades(1, 1_000)
    for power in (0.5, 1.0, 2.0):
        curve = Curve("", "", "", power, sizes, [1e-3 * n**power for n in sizes])
        assert curve.slope == pytest.approx(power)
        assert curve.whole == pytest.approx(power)
    made = []
    curve = grown("a", "b", "c", 1.0, [10, 20], lambda n: lambda: made.append(n))
    assert curve.sizes == [10, 20]
    assert made == sorted(made)
    assert all(second >= 0 for second in curve.seconds)
