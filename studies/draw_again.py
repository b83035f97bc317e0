"""Pictures of stored results, drawn again without running anything: ``python -m studies.draw_again docs/results``.

A record of `crfield reproduce` holds its charts, so that a better way to draw them is seen in all pictures at once.
Results without a picture, and those of `crfield experiment`, which have no charts, are left alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from crfield.report.displays.curves import Chart
from crfield.storage.files import read_text
from studies.record import draw


def draw_again(folder: Path) -> list[Path]:
    """Draw every NAME.png of the folder again from NAME.json; those that were drawn."""
    drawn = []
    for path in sorted(folder.glob("*.png")):
        told = json.loads(read_text(path.with_suffix(".json")))
        charts = [Chart.from_dict(chart) for chart in told.get("charts", ())]
        if charts:
            draw(charts, str(path))
            drawn.append(path)
    return drawn


if __name__ == "__main__":
    sys.stdout.writelines(f"{path}\n" for path in draw_again(Path(sys.argv[1])))
