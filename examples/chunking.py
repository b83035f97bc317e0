"""Chunking on CoNLL-2000 with several options: ``python examples/chunking.py FOLDER``.

FOLDER holds ``train.txt.gz`` and ``test.txt.gz`` of the shared task (columns: word, part of speech, chunk tag). The
template is that of CRF++'s example: 19 patterns over words and parts of speech in a window of two either way.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

import crfield
from crfield.metrics import span_f1, token_accuracy

WORDS = ("-2", "-1", "0", "1", "2", "-1 0", "0 1")
TAGS = ("-2", "-1", "0", "1", "2", "-2 -1", "-1 0", "0 1", "1 2", "-2 -1 0", "-1 0 1", "0 1 2")
MODELS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("as CRFsuite", {"l2": 2.0, "intercept": False, "boundaries": False}, "viterbi"),
    ("as CRFsuite", {"l2": 2.0, "intercept": False, "boundaries": False}, "marginal"),
    ("default", {}, "viterbi"),
    ("l1 = 1", {"l1": 1.0, "l2": 0.0}, "viterbi"),
)


def template() -> str:
    """The text of the template."""
    patterns = [(rows, column) for column, windows in enumerate((WORDS, TAGS)) for rows in windows]
    lines = ["/".join(f"%x[{row},{column}]" for row in rows.split()) for rows, column in patterns]
    return "".join(f"U{number:02}:{line}\n" for number, line in enumerate(lines)) + "B\n"


def main(folder: Path) -> None:
    """Train, tag and score each of the models."""
    X, y = crfield.read_columns(folder / "train.txt.gz").split_column(-1)
    X_test, y_test = crfield.read_columns(folder / "test.txt.gz").split_column(-1)
    for name, options, decode in MODELS:
        model = crfield.ChainCRF(template=template(), decode=decode, n_jobs=-1, **options).fit(X, y)
        found = model.predict(X_test)
        chunks, tokens = span_f1(y_test, found), token_accuracy(y_test, found)
        print(
            f"{name:12} {decode:9} chunk F1 {chunks:.1%}, token accuracy {tokens:.1%}, "
            f"objective {model.objective_:,.1f}, {np.count_nonzero(model.coef_):,} of {len(model.coef_):,} weights"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
