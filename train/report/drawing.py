"""How figures look: SVG that stands inside the page, text and axes in the page's own colour."""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from contextlib import AbstractContextManager
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.figure import Figure

# Legible on white and on near-black alike.
COLOURS = ("#3b82c4", "#e07b39", "#2f9e6e", "#c2508f", "#8a6fd1", "#b8952b", "#3aa6b0", "#d1574e",
           "#7c8a3a", "#8a8f98")  # fmt: skip
INK = "#010203"
"""Stands for the page's text colour until the figure is written."""


def page_style() -> AbstractContextManager[None]:
    """Settings of matplotlib under which every figure of the page is drawn."""
    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color",
             "grid.color")  # fmt: skip
    values: Any = {
        "svg.fonttype": "none",  # text stays text
        "text.parse_math": False,  # names of labels may hold any letters
        "svg.hashsalt": "",  # the same ids each time
        "font.size": 10,
        "axes.titlesize": 10.5,
        "axes.prop_cycle": cycler(color=COLOURS),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.facecolor": "none",
        "grid.alpha": 0.15,
        "legend.frameon": False,
        "savefig.facecolor": "none",
        **dict.fromkeys(inked, INK),
    }
    return mpl.rc_context(values)


def as_svg(figure: Figure) -> str:
    """The `<svg>` element alone, as wide as the page lets it."""
    text = io.StringIO()
    with warnings.catch_warnings():
        # Letters that matplotlib has no shape for are drawn by the browser, which has.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(text, format="svg", metadata={"Date": None}, dpi=144)
    svg = text.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.S)
    # No id may occur twice on a page: those that nobody refers to go, the others name their figure.
    svg = re.sub(r'(<g|<image [^>]*) id="[^"]*"', r"\1", svg)
    own = hashlib.blake2b(svg.encode(), digest_size=4).hexdigest()
    svg = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>f{own}-", svg)
    # Sizes stay, families are those of the page.
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    width, opening = figure.get_figwidth() * 96, svg[: svg.index(">")]
    sized = re.sub(r' (width|height)="[^"]*"', "", opening) + f' style="max-width: {width:.0f}px"'
    return sized.replace(INK, "currentColor") + svg[len(opening) :].replace(INK, "currentColor")
