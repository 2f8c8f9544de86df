"""The picture of a run: what was reached of each figure, with must and aim marked, as SVG.

Needs matplotlib, which `forebay[tools]` brings.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from io import BytesIO
from typing import Final

from .claims import Judged

COLOURS: Final = {"aim": "#1f7a4d", "held": "#1f5fa8", "lost": "#c8501e"}
MEANINGS: Final = {"aim": "aim reached", "held": "must held", "lost": "lost"}
AIM: Final = "#222222"
GRID: Final = "#dddddd"
TICKS: Final = (0.25, 0.5, 1, 2, 4, 10, 20, 50)
ROW_INCHES: Final = 0.3


def picture(found: Sequence[Judged]) -> bytes | None:
    """The same figures give the same bytes. None: there is nothing to draw, or nothing to draw with."""
    if not found or find_spec("matplotlib") is None:
        return None
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "forebay", "font.family": "sans-serif"}):
        figure = Figure(figsize=(11.0, 1.6 + ROW_INCHES * len(found)), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        places = range(len(found))
        axes.barh(places, [each.of_must for each in found], color=[COLOURS[each.outcome] for each in found], height=0.6)
        for place, each in zip(places, found, strict=True):
            if each.aim_of_must is not None:
                axes.plot([each.aim_of_must] * 2, [place - 0.42, place + 0.42], color=AIM, linewidth=2)
            axes.annotate(
                f"{each.value:,.3g}{each.claim.form.unit}",
                (max(each.of_must, each.aim_of_must or 0), place),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
        axes.axvline(1, color=COLOURS["lost"], linestyle=":", linewidth=1.5)
        axes.set_xscale("log")
        axes.set_xlim(min(0.2, *(each.of_must * 0.8 for each in found)), max(each.of_must for each in found) * 3)
        ticks = [
            tick for tick in (0.1, 0.25, 0.5, 1, 2, 4, 10, 20, 50) if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]
        ]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_yticks(places, [f"{each.claim.group}  {_name(each)}" for each in found], fontsize=8)
        axes.invert_yaxis()
        axes.grid(axis="x", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.set_xlabel("how much better than the must, which is 1; bars end at the figure that stands beside them")
        axes.legend(
            handles=[
                *(Patch(color=COLOURS[outcome], label=meaning) for outcome, meaning in MEANINGS.items()),
                Line2D([], [], color=COLOURS["lost"], linestyle=":", label="must"),
                Line2D([], [], color=AIM, linewidth=2, label="aim"),
            ],
            loc="upper center",
            bbox_to_anchor=(0.4, 1.1),
            ncols=5,
            frameon=False,
            fontsize=8,
        )
        written = BytesIO()
        figure.savefig(written, format="svg", metadata={"Date": None})
    return written.getvalue()


def _name(each: Judged) -> str:
    return (each.claim.name or each.claim.title).replace("`", "")
