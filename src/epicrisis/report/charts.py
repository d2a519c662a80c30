"""Drawings as charts: one Vega-Lite specification gives the interactive chart and the static SVG of each panel.

Colours are the page's own variables, so that a chart follows its light or dark scheme; colour never tells anything
that shape, dash or a label does not tell too. Needs the extra `report`; knows no experiment and no table.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from epicrisis.report.figures import PlotFigure, PlotMark

Spec: TypeAlias = dict[str, Any]
"""Vega-Lite, or a part of it."""

WIDTH, HEIGHT = 360, 260
"""Of a panel, in pixels; so wide it fits a telephone. Where figures stand along names, each name has a row."""
COLOURS = ("#0072b2", "#d55e00", "#00825f", "#a8508a", "#8a6a00", "#4a4a4a")
"""Of the series on white: after Okabe and Ito, darkened where they would not stand out from paper. The style sheet has
those for a dark page, by the same numbers."""
SHAPES = (
    "M1,0A1,1,0,1,1,-1,0A1,1,0,1,1,1,0Z",
    "M-.9,-.9H.9V.9H-.9Z",
    "M0,-1L1,.8H-1Z",
    "M0,-1L1,0L0,1L-1,0Z",
    "M-.35,-1H.35V-.35H1V.35H.35V1H-.35V.35H-1V-.35H-.35Z",
    "M0,1L1,-.8H-1Z",
    "M-1,0L.8,-1V1Z",
)
"""Within -1 and 1 both ways."""
DASHES = ((1, 0), (7, 3), (2, 3), (10, 3, 2, 3), (4, 2))

_INK, _LINE, _PAPER = "var(--ink, #1b1b1b)", "var(--line, #d0d0d0)", "var(--paper, #ffffff)"
_TEXT = {"color": _INK, "fontSize": 12}
_ZERO = {"condition": {"test": "datum.value === 0", "value": _INK}, "value": _LINE}
"""Of lines across: no difference is where one as dark as a frame is."""
_NAME, _ROW, _OFFSET = 20, 24, 15
"""Characters of a line of a row's name; pixels of a row, and of each series in it."""
_MOST_TICKS = 8
_BESIDE = 60
"""Pixels from the left, where the first figures of lines are, to the name of what holds everywhere."""


@dataclass(frozen=True, slots=True)
class Style:
    """How a series looks, wherever it is drawn."""

    colour: str
    shape: str
    dash: tuple[int, ...]


def styles(series: Iterable[str]) -> Mapping[str, Style]:
    """One for each; what differs in case and hyphens alone has the same (`brief-context` and the paper's
    `BriefContext`). Colours, shapes and dashes come round after different numbers, so no two others are alike."""
    numbers: dict[str, int] = {}
    return {name: _style(numbers.setdefault(_plain(name), len(numbers))) for name in series}


def _plain(name: str) -> str:
    return name.casefold().replace("-", "")


def _style(i: int) -> Style:
    c = i % len(COLOURS)
    return Style(f"var(--c{c}, {COLOURS[c]})", SHAPES[i % len(SHAPES)], DASHES[i % len(DASHES)])


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart."""

    title: str
    """What of; empty where the plot has but one."""
    svg: str
    specification: str
    """JSON, without any `<`: nothing in it ends an element of a page."""


def panels(drawing: PlotFigure, looks: Mapping[str, Style]) -> tuple[Panel, ...]:
    """A chart for each panel, all but bars on one scale. Raises ImportError without the extra."""
    import vl_convert

    made = []
    for name in drawing.panels:
        marks = [mark for mark in drawing.marks if mark.panel == name]
        drawn = _line(drawing, marks, looks) if drawing.plot.kind == "line" else _rows(drawing, marks, looks)
        specification = {"config": _CONFIG, **drawn}
        # Within a page an SVG needs no namespaces.
        svg = re.sub(r' (?:xmlns(?::xlink)?|version)="[^"]*"', "", vl_convert.vegalite_to_svg(specification), count=3)
        made.append(Panel(name, svg, json.dumps(specification, separators=(",", ":")).replace("<", "\\u003c")))
    return tuple(made)


@cache
def program() -> str:
    """What makes charts of the specifications in a browser (`vegaEmbed`), whole. Raises ImportError without the
    extra."""
    import vl_convert

    return vl_convert.javascript_bundle(_GLOBAL)


_GLOBAL = "window.vegaEmbed = vegaEmbed;"
_FIT = {"type": "fit", "contains": "padding"}
_AXIS: Spec = {
    "titleAnchor": "end",
    "tickCount": 5,
    "labelOverlap": "greedy",
    "labelSeparation": 5,
    "labelFlush": False,
}
_CONFIG: Spec = {
    "background": "transparent",
    # Names may be wider in the fonts of another machine than in those that the chart was measured with.
    "padding": {"left": 16, "right": 8, "top": 6, "bottom": 4},
    "font": "Arial, Helvetica, sans-serif",
    "view": {"stroke": None},
    # The page names each chart as one picture, whose figures are in a table.
    "mark": {"aria": False},
    "axis": {
        "aria": False,
        "labelColor": _INK,
        "titleColor": _INK,
        "gridColor": _LINE,
        "domainColor": _INK,
        "tickColor": _INK,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": 0,
        "titleLimit": 0,
    },
}


# -- along numbers ----------------------------------------------------------------------------------------------------


def _line(drawing: PlotFigure, marks: Sequence[PlotMark], looks: Mapping[str, Style]) -> Spec:
    """Lines through the figures of each series, with their intervals; dashes across for what holds everywhere."""
    along = _Along.of(drawing)
    through = [mark for mark in marks if mark.x is not None]
    data = [
        {**_datum(mark), "order": i, "x": along.beside(mark), "at": f"{mark.x:g}"} for i, mark in enumerate(through)
    ]
    x: Spec = {"field": "x", "type": "quantitative", "title": along.title, "scale": along.scale, "axis": along.axis}
    y: Spec = {
        **_figures(drawing),
        "scale": {"domain": _extent(drawing), "nice": False},
        "axis": {
            "titleAngle": 0,
            "titleAlign": "left",
            "titleX": -34,
            "titleBaseline": "bottom",
            "gridColor": _ZERO,
            "titleY": -8 - 14 * (len(_title(drawing)) - 1),
        },
    }
    colour, dash = _series("color", "colour", looks), _series("strokeDash", "dash", looks)
    line = {"y": y, **colour, **dash, "order": {"field": "order", "type": "quantitative"}}
    interval = {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}, **colour}
    points = _points({"y": y, "tooltip": _tooltip({"field": "at", "title": along.title})}, looks)
    drawn = [
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": line},
        *([] if drawing.many else [{"mark": "rule", "encoding": interval}, points]),
    ]
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "autosize": _FIT,
        "layer": [
            {"data": {"values": data}, "encoding": {"x": x}, "layer": drawn},
            *_bounds([mark for mark in marks if mark.x is None], y, looks),
        ],
    }


def _bounds(marks: Sequence[PlotMark], y: Spec, looks: Mapping[str, Style]) -> list[Spec]:
    """Named where they are drawn: near the left, and every other one at the right, lest one name hides the next."""
    made: list[Spec] = []
    for i, mark in enumerate(sorted(marks, key=lambda mark: mark.value)):
        place = {"align": "right", "x": "width"} if i % 2 else {"align": "left", "x": _BESIDE}
        text = f"{mark.series} {mark.label.removesuffix(' %')}"
        name = {"type": "text", "text": text, "baseline": "bottom", "dy": -3, **_TEXT}
        style = _series("color", "colour", looks) | _series("strokeDash", "dash", looks)
        rule = {"mark": {"type": "rule", "strokeWidth": 1.5}, "encoding": {"y": y, **style, "tooltip": _tooltip()}}
        made.append({"data": {"values": [_datum(mark)]}, "layer": [rule, {"mark": name | place, "encoding": {"y": y}}]})
    return made


@dataclass(frozen=True, slots=True)
class _Along:
    """The scale along a line."""

    title: str
    series: tuple[str, ...]
    ticks: tuple[float, ...]
    """Empty: as many as fit."""
    low: float
    high: float
    log2: bool

    @classmethod
    def of(cls, drawing: PlotFigure) -> _Along:
        places = sorted({mark.x for mark in drawing.marks if mark.x is not None}) or [0.0]
        # Places and numbers of documents are ticks of their own; rates are not.
        ticks = tuple(places) if len(places) <= _MOST_TICKS and all(map(float.is_integer, places)) else ()
        title, log2 = drawing.plot.axis or drawing.plot.along[0], drawing.plot.log2
        margin = 0.05 * (places[-1] - places[0]) or 1.0
        ends = (places[0] / 1.3, places[-1] * 1.3) if log2 else (places[0] - margin, places[-1] + margin)
        return cls(title, drawing.series, ticks, *ends, log2)

    @property
    def scale(self) -> Spec:
        return {"domain": [self.low, self.high], "nice": False, **({"type": "log", "base": 2} if self.log2 else {})}

    @property
    def axis(self) -> Spec:
        return {"values": self.ticks, "grid": False} if self.ticks else {"tickCount": 5}

    def beside(self, mark: PlotMark) -> float:
        """Where a mark is drawn: a little beside those of other series, so that no interval hides another."""
        x = mark.x or 0.0
        shift = 0.05 * ((self.series.index(mark.series) + 0.5) / len(self.series) - 0.5) if self.ticks else 0.0
        return x * (self.high / self.low) ** shift if self.log2 else x + shift * (self.high - self.low)


# -- along names ------------------------------------------------------------------------------------------------------


def _rows(drawing: PlotFigure, marks: Sequence[PlotMark], looks: Mapping[str, Style]) -> Spec:
    """A row for each name: points with their intervals, or bars one after the other."""
    names = {mark.row: _broken(mark.row) for mark in marks}
    figures = _figures(drawing)
    data = [
        {**_datum(mark), "row": "\n".join(names[mark.row]), "from": start, "to": end}
        for mark, (start, end) in zip(marks, _spans(marks), strict=True)
    ]
    bars = drawing.plot.kind == "bars"
    # Series of a row stand below each other, where they are columns; bars stand one after the other.
    below = 0 if bars or drawing.value else max(Counter(mark.row for mark in marks).values())
    row = max(_ROW, 14 * max(map(len, names.values())) + 6, below * _OFFSET + 8)
    y: Spec = {
        "field": "row",
        "type": "nominal",
        "sort": None,
        "title": None,
        "scale": {"paddingInner": 0.25},
        "axis": {
            "labelExpr": "split(datum.label, '\\n')",
            "labelPadding": 9,
            "domain": False,
            "ticks": False,
            "grid": not bars,
        },
    }
    offset: Spec = {"yOffset": {"field": "series", "type": "nominal", "sort": None}} if below else {}
    return {
        "data": {"values": data},
        "width": WIDTH,
        "height": len(names) * row + 14 * len(figures["title"]) + 34,
        "autosize": _FIT,
        "encoding": {"y": y, **offset},
        "layer": _stacked(drawing, figures, marks, looks) if bars else _dots(drawing, figures, looks),
    }


def _broken(name: str) -> list[str]:
    """In lines, of which one may begin with a plus as well: `self-consistency`, `+shuffling`."""
    lines = textwrap.wrap(name.replace("+", " \0+"), _NAME)
    return [line.replace(" \0", "").replace("\0", "") for line in lines]


def _dots(drawing: PlotFigure, figures: Spec, looks: Mapping[str, Style]) -> list[Spec]:
    scale = {"domain": _extent(drawing), "nice": False, "zero": False}
    x = {**figures, "scale": scale, "axis": {**_AXIS, "gridColor": _ZERO}}
    low = {"field": "low", "type": "quantitative", "title": figures["title"]}
    interval = {"x": low, "x2": {"field": "high"}, **_series("color", "colour", looks)}
    return [
        {"mark": "rule", "encoding": interval},
        _points({"x": x, "tooltip": _tooltip({"field": "row"})}, looks),
    ]


def _stacked(drawing: PlotFigure, figures: Spec, marks: Sequence[PlotMark], looks: Mapping[str, Style]) -> list[Spec]:
    """Bars on a scale of their own, each with its figure: in its middle where there are several, and it fits; else
    behind its end."""
    single = len(drawing.series) == 1
    end = max(end for _, end in _spans(marks)) * (1.25 if single else 1.02) or 1.0
    # Counts have no halves.
    axis = _AXIS if drawing.unit else {**_AXIS, "tickMinStep": 1}
    x = {**figures, "field": "from", "scale": {"domain": [0, end], "nice": False}, "axis": axis}
    shown = {
        "x": x,
        "x2": {"field": "to"},
        **_series("fill", "colour", looks),
        **_series("stroke", "colour", looks),
        "fillOpacity": {"condition": {"test": "datum.hollow", "value": 0}, "value": 0.25},
        "tooltip": _tooltip({"field": "row"}),
    }
    bar = {"mark": "bar", "encoding": shown}
    text: Spec = {"mark": {"type": "text", **_TEXT, "align": "center"}, "encoding": {"text": {"field": "label"}}}
    if single:
        text["mark"] |= {"align": "left", "dx": 4}
        text["encoding"]["x"] = {"field": "to", "type": "quantitative"}
    else:
        text["transform"] = [
            {"calculate": "(datum.from + datum.to) / 2", "as": "middle"},
            {"filter": f"(datum.to - datum.from) * 220 / {end:g} > 8 * length(datum.label)"},
        ]
        text["encoding"]["x"] = {"field": "middle", "type": "quantitative"}
    return [bar, text]


# -- parts ------------------------------------------------------------------------------------------------------------


def _datum(mark: PlotMark) -> Spec:
    return {
        "series": mark.series,
        "value": mark.value,
        "low": mark.low,
        "high": mark.high,
        "told": mark.told,
        "label": mark.label,
        "hollow": mark.hollow,
    }


def _figures(drawing: PlotFigure) -> Spec:
    """The channel of the figures."""
    return {"field": "value", "type": "quantitative", "title": _title(drawing)}


def _title(drawing: PlotFigure) -> list[str]:
    """What the figures are, in lines."""
    title = f"{drawing.value} ({drawing.unit})" if drawing.value and drawing.unit else drawing.value or drawing.unit
    return textwrap.wrap(title, 56)


def _series(channel: str, part: str, looks: Mapping[str, Style]) -> Spec:
    """The channel that shows the series by this part of their style. The page has the legend, for all panels."""
    scale = {"domain": list(looks), "range": [getattr(style, part) for style in looks.values()]}
    return {channel: {"field": "series", "type": "nominal", "scale": scale, "legend": None}}


def _points(encoding: Spec, looks: Mapping[str, Style]) -> Spec:
    """Filled, or hollow."""
    fill = _series("fill", "colour", looks)["fill"]
    hollow = {"condition": {"test": "!datum.hollow", **fill}, "value": _PAPER}
    return {
        "mark": {"type": "point", "size": 60, "strokeWidth": 1.5, "opacity": 1},
        "encoding": {
            **encoding,
            **_series("shape", "shape", looks),
            **_series("stroke", "colour", looks),
            "fill": hollow,
        },
    }


def _tooltip(*where: Spec) -> list[Spec]:
    """Series, where it stands, and the figure in words."""
    fields = [{"field": "series", "title": "series"}, *where, {"field": "told", "title": "figure"}]
    return [{"type": "nominal", **each} for each in fields]


def _extent(drawing: PlotFigure) -> tuple[float, float]:
    """Of the figures with their intervals; what is no share begins at 0, a difference has it within."""
    ends = [end for mark in drawing.marks for end in (mark.value, mark.low, mark.high) if end is not None]
    if drawing.unit != "%":
        ends.append(0.0)
    low, high = min(ends), max(ends)
    if not drawing.unit:
        return low, 1.05 * high or 1.0
    step = 10 if high - low > 20 else 5
    return step * math.floor(low / step), step * math.ceil((high + 1e-9) / step)


def _spans(marks: Iterable[PlotMark]) -> list[tuple[float, float]]:
    """From where to where each bar reaches: those of a row stand one after the other."""
    ends: dict[tuple[str, str], float] = defaultdict(float)
    spans = []
    for mark in marks:
        start = ends[mark.panel, mark.row]
        ends[mark.panel, mark.row] = start + mark.value
        spans.append((start, start + mark.value))
    return spans
