"""Sources that are compiled with little optimisation hand on what they are given: what counts or loops is not theirs.

They once checked column indices one by one, and tagging a sentence took an eighth longer.
"""

from __future__ import annotations

import re
from pathlib import Path

NATIVE = Path(__file__).parents[2] / "native"
COUNTING = re.compile(r"\bfor \([^:]*;|\bwhile \(|\bcheck_(?:columns|csr|offsets)\(|\bsplit_sequences\(")


def doors() -> list[Path]:
    """The files of a module that its build description gives -O1."""
    given = (
        re.findall(r"set_source_files_properties\((.*?)\)\n", part.read_text(), re.DOTALL)
        for part in NATIVE.glob("*/module.cmake")
    )
    slow = [one for found in given for one in found if "-O1" in one]
    return [NATIVE.parent / name for one in slow for name in re.findall(r"native/\S+\.cpp", one)]


def test_doors_do_not_count() -> None:
    assert len(doors()) >= 2
    for path in doors():
        found = COUNTING.search(path.read_text(encoding="utf-8"))
        assert not found, f"{path.name}: {found[0]} … belongs into a file that is compiled with the loops"
