"""An empty figure of matplotlib, which is imported when something is drawn and not before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crfield.errors import CrfieldError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> Figure:
    """A figure of this size in inches; CrfieldError where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise CrfieldError("plots need matplotlib, which is not installed: pip install 'crfield[plots]'.") from None
    return Figure(figsize=(width, height), layout="constrained")
