"""Store a model file of every kind, with its answers: ``python -m tests.stored.make`` in the project's folder.

The files of a version are made once, when the way a kind is stored changes or a kind is new, and are kept for ever.
Cases that a folder has already are left as they are.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import crfield
from tests.stored.cases import CASES, answers, strings

HERE = Path(__file__).parent
TRAINING: dict[str, Any] = {"solver": "lbfgs", "tol": 1e-9, "max_iter": 400}
ENCODED = "encoded-strings"


def stops_early(now: Any, _weights: Any) -> bool:
    return now.n_iter >= 4


def main() -> None:
    folder = HERE / crfield.__version__
    folder.mkdir(exist_ok=True)
    path = folder / "answers.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    warnings.simplefilter("ignore")
    for case in CASES:
        if case.name not in known:
            model = case.fit(case.model(), *case.data(12, 0))
            crfield.save(model, folder / f"{case.name}.crfield")
            known[case.name] = answers(model, case)
    X, y = strings(12, 0)
    if not (folder / "stopped.checkpoint").exists():
        stopped = crfield.ChainCRF(checkpoint=folder / "stopped.checkpoint", callback=stops_early, **TRAINING)
        known["stopped"] = {"value": stopped.fit(X, y).history_[-1].value}
        known["finished"] = {"objective": crfield.ChainCRF(**TRAINING).fit(X, y).objective_}
    if not (folder / ENCODED).exists():
        crfield.encode_dataset([(X[:6], y[:6]), (X[6:], y[6:])], folder / ENCODED, shard_bytes=1000)
    if not (folder / "chain.crfsuite").exists():
        model = crfield.ChainCRF(intercept=False, boundaries=False).fit(X, y)
        crfield.write_crfsuite_model(model, folder / "chain.crfsuite")
        known["crfsuite"] = {"predict": [labels.tolist() for labels in model.predict(strings(4, 1)[0])]}
    path.write_text(json.dumps(known, indent=None, sort_keys=True).replace('}, "', '},\n"') + "\n")


if __name__ == "__main__":
    main()
