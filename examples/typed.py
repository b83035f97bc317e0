"""What a type checker sees of the library: every line here is checked by pyright (`make check`), and runs.

python examples/typed.py
"""

from __future__ import annotations

import numpy as np

from crfield import ChainCRF


def main() -> None:
    """Train, save, load and ask; types are those of the annotations."""
    X = [[{"word": word} for word in line.split()] for line in ("two eggs", "one cup of milk", "one egg")]
    y = [["count", "food"], ["count", "unit", "other", "food"], ["count", "food"]]
    model: ChainCRF = ChainCRF(l2=1.0, max_iter=50).fit(X, y)
    labels = model.predict(X)
    marginals = model.predict_marginals(X)
    first: np.ndarray = np.asarray(labels[0])
    print(len(labels), "sequences,", len(first), "labels in the first,", len(marginals), "lists of marginals")
    print(f"accuracy {model.score(X, y):.3f}, {model.n_iter_} steps, labels {list(model.classes_)}")


if __name__ == "__main__":
    main()
