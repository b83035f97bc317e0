"""Label bias on a machine of five states: ``python examples/label_bias.py``.

The five states of the lecture on MEMMs and CRFs: the same table of transitions read as local probabilities and
as potentials. Models that are
trained to say rib or rob: ``crfield experiment label-bias``.
"""

from __future__ import annotations

import numpy as np

from crfield.core.semiring import Semiring
from crfield.inference.chain import ChainEngine
from crfield.inference.labellings import path_scores
from crfield.objectives.gold_past import normalised
from crfield.simulate.label_bias import five_states

PATHS = ([0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0, 1, 1, 1])


def five_state_table() -> list[tuple[str, float, float, float]]:
    """Paths of the figure: product of local probabilities, product of potentials, probability in the field."""
    local, scores = five_states(), five_states(against_chance=True)
    total = ChainEngine().infer(scores, Semiring.LOG).total[0]
    rows = []
    for path in PATHS:
        chosen = np.array(path)
        product, weight = path_scores(local, chosen)[0], path_scores(scores, chosen)[0]
        rows.append((arrows(chosen), float(np.exp(product)), float(np.exp(weight)), float(np.exp(weight - total))))
    return rows


def best_paths() -> tuple[str, str]:
    """The best path of the locally normalised model and of the field, both made of the same potentials."""
    scores = five_states(against_chance=True)
    engine = ChainEngine()
    return arrows(engine.best_path(normalised(scores))[1]), arrows(engine.best_path(scores)[1])


def arrows(path: np.ndarray) -> str:
    """States as the figure counts them."""
    return " → ".join(str(code + 1) for code in path.tolist())


def main() -> None:
    """Print the paths and the best of them."""
    print("Five states: state 1 has two ways on, state 2 five. Potentials are probabilities against chance.\n")
    print(f"{'path':<16}{'local product':>14}{'potentials':>12}{'p in the field':>16}")
    for path, product, weight, share in five_state_table():
        print(f"{path:<16}{product:>14.3f}{weight:>12.2f}{share:>16.3f}")
    local, field = best_paths()
    print(f"\nbest path, normalised locally   {local}\nbest path, normalised globally  {field}\n")


if __name__ == "__main__":
    main()
