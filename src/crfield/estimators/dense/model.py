"""What a fitted `DenseCRF` holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from crfield.core.typing import Parameters
from crfield.data.labels import LabelCoder
from crfield.errors import FeatureError
from crfield.estimators.dense.local import LocalClassifier
from crfield.estimators.dense.points import Points
from crfield.inference.dense import DenseField
from crfield.kernels.dense import FARTHEST
from crfield.storage.state import State, check_table, refuse
from crfield.training.dense import DenseParameters

MOST_SWEEPS = 100_000
WIDTHS = (1e-6, 1e16)


@dataclass(frozen=True, eq=False)
class DenseModel:
    """Labels, the classifier of single points (None where unaries are given), and the parameters of the field."""

    labels: LabelCoder
    local: LocalClassifier | None
    parameters: DenseParameters
    sweeps: int
    n_colours: int | None  # None: any
    normalization: str
    accuracy: str

    def field(self, one: Points, scores: np.ndarray, number: int, *, n_jobs: int) -> DenseField:
        """The field of image ``number`` with log-probabilities (N, L)."""
        own = self.parameters
        check_reach(one, own, number)
        kernels = own.kernels(one.places, one.colours, accuracy=self.accuracy, n_jobs=n_jobs)
        filters = [kernel.normalised(self.normalization, n_jobs=n_jobs) for kernel in kernels]
        return DenseField((own.certainty * scores).astype(np.float32), filters, own.compatibilities)

    def state(self) -> State:
        """Header and arrays."""
        own = self.parameters
        header = {"labels": self.labels.to_json(), "sweeps": self.sweeps, "n_colours": self.n_colours}
        arrays = {"certainty": np.array([own.certainty])}
        for number, (table, widths) in enumerate(zip(own.compatibilities, own.widths)):
            arrays[f"compatibility {number}"] = np.asarray(table, np.float64)
            arrays[f"widths {number}"] = np.asarray(widths, np.float64)
        state = State({**header, "n_kernels": len(own.widths), "local": None}, arrays)
        return state if self.local is None else state.with_part("local", self.local.state())

    @classmethod
    def from_state(cls, state: State, parameters: Parameters) -> Self:
        """The value whose `state` this is; ModelFileError for whatever does not fit."""
        labels = LabelCoder.from_json(state.header.get("labels"))
        n = labels.n_labels
        sweeps, count = state.integer("sweeps", most=MOST_SWEEPS), state.integer("n_kernels", most=2)
        shape = {"potts": (), "diagonal": (n,), "full": (n, n)}[parameters["compatibility"]]
        if len(shape) == 2:
            check_table(8 * n * n, sum(a.nbytes for a in state.arrays.values()), f"compatibilities of {n:,} labels")
        certainty = float(state.array("certainty", (1,))[0])
        tables, widths = [], []
        for number in range(count):
            tables.append(state.array(f"compatibility {number}", shape))
            own = state.array(f"widths {number}", (None,))
            if len(own) != number + 1 or not ((own >= WIDTHS[0]) & (own <= WIDTHS[1])).all():
                refuse("the widths of the kernels cannot be used")
            widths.append(tuple(own.tolist()))
        if not 0 < certainty < 1e6 or any(np.abs(table).max(initial=0.0) > 1e6 for table in tables):
            refuse("the weights of the field cannot be used")
        n_colours = None if state.header.get("n_colours") is None else state.integer("n_colours", most=15)
        local = None
        if state.header.get("local") is not None:
            local = LocalClassifier.from_state(state.part("local"), labels)
            if len(local.centre) != n_colours:
                refuse("the local classifier does not fit the channels")
        own_parameters = DenseParameters(certainty, tuple(tables), tuple(widths))
        chosen = parameters["normalization"], parameters["accuracy"]
        return cls(labels, local, own_parameters, sweeps, n_colours, *chosen)


def check_reach(one: Points, parameters: DenseParameters, number: int) -> None:
    """FeatureError for the first channel that lies too many widths away for single precision."""
    widths = [own[1] for own in parameters.widths if len(own) > 1]
    if not widths or not one.colours.size:
        return
    most = 0.5 * FARTHEST * min(widths)
    large = np.abs(one.colours) > most
    if large.any():
        row, column = (int(k) for k in np.argwhere(large)[0])
        raise FeatureError(
            f"graph {number}, node {row}: feature 'channel[{column}]' is {one.colours[row, column]:g}, more than "
            f"{0.5 * FARTHEST:,.0f} times the width {min(widths):g} of the kernel. Bring the channels to one scale."
        )
