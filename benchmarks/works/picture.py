"""The picture of a run as SVG: each figure, with its required and its desired value marked.

Needs matplotlib, which `forebay[tools]` brings.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

from ..drawing import BLUE, GREEN, ORANGE, panels, svg, title
from .claims import Judged

COLOURS: Final = {"aim": GREEN, "held": BLUE, "lost": ORANGE}
MEANINGS: Final = {"aim": "aim reached", "held": "must held", "lost": "lost"}
AIM: Final = "#222222"
TICKS: Final = (0.1, 0.25, 0.5, 1, 2, 4, 10, 20, 50)
ROW_INCHES: Final = 0.27


def picture(found: Sequence[Judged]) -> str | None:
    """Return the picture; the same figures give the same text. None: there is nothing to draw, or no matplotlib."""
    if not found or find_spec("matplotlib") is None:
        return None
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure, [axes] = panels(1, 1, 11.0, 1.4 + ROW_INCHES * len(found), sharex=False)
    places = range(len(found))
    axes.barh(places, [each.of_must for each in found], color=[COLOURS[each.outcome] for each in found], height=0.6)
    for place, each in zip(places, found, strict=True):
        aim = each.aim_of_must
        if aim is not None:
            axes.plot([aim, aim], [place - 0.42, place + 0.42], color=AIM, linewidth=2)
        beside = max(each.of_must, aim or 0)
        text = f"{each.value:,.3g}{each.claim.form.unit}"
        axes.annotate(text, (beside, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8)
    axes.axvline(1, color=ORANGE, linestyle=":", linewidth=1.5)
    axes.set_xscale("log")
    lowest, highest = (pick(each.of_must for each in found) for pick in (min, max))
    axes.set_xlim(min(0.2, lowest * 0.8), max(3, highest * 3))
    ticks = [tick for tick in TICKS if lowest * 0.8 <= tick <= highest * 1.5 or tick == 1]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.grid(False, axis="y")
    axes.set_yticks(places, [f"{each.claim.group}  {_name(each)}" for each in found], fontsize=8)
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xlabel("times as good as it must be")
    title(axes, "What was reached")
    axes.legend(
        handles=[
            *(Patch(color=COLOURS[outcome], label=meaning) for outcome, meaning in MEANINGS.items()),
            Line2D([], [], color=ORANGE, linestyle=":", label="must"),
            Line2D([], [], color=AIM, linewidth=2, label="aim"),
        ],
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=5,
        frameon=False,
        fontsize="small",
    )
    return svg(figure)


def _name(each: Judged) -> str:
    return (each.claim.name or each.claim.title).replace("`", "")
