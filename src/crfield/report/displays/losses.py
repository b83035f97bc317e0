"""The two losses of a margin: logistic and hinge.

With classes −1 and 1 and a score g, both losses see the margin m = y g alone. The hinge max(0, 1 − m) is nothing once
the margin is 1, so most rows end without a say; the logistic loss log(1 + e^−m) falls for ever, so none does, and in
return its scores are log-odds. Far on the wrong side both grow by 1 for each unit of m.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from crfield.report.displays.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def margin_losses(margin: np.ndarray) -> dict[str, np.ndarray]:
    """Losses at given margins, by name.

    >>> {name: loss.round(3).tolist() for name, loss in margin_losses(np.array([-1.0, 0.0, 2.0])).items()}
    {'wrong': [1.0, 1.0, 0.0], 'hinge': [2.0, 1.0, 0.0], 'logistic': [1.313, 0.693, 0.127]}
    """
    margin = np.asarray(margin, dtype=np.float64)
    return {
        "wrong": (margin <= 0).astype(np.float64),
        "hinge": np.maximum(0.0, 1.0 - margin),
        "logistic": np.logaddexp(0.0, -margin),
    }


def plot_losses(*, reach: float = 3.0, width: float = 5.0, height: float = 3.4) -> Figure:
    """Both losses, and the share of errors that they stand for, against the margin.

    >>> figure = plot_losses()
    >>> [line.get_label() for line in figure.axes[0].lines]
    ['wrong', 'hinge', 'logistic']
    """
    figure = new_figure(width, height)
    axes = figure.subplots()
    margin = np.linspace(-reach, reach, 601)
    colours = {"wrong": "#999999", "hinge": "#f26419", "logistic": "#33658a"}
    for name, loss in margin_losses(margin).items():
        axes.plot(margin, loss, color=colours[name], label=name, linewidth=1.0 if name == "wrong" else 1.8)
    axes.set_xlabel("margin  y g(x)")
    axes.set_ylabel("loss")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure
