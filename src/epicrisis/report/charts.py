"""Draw figures as charts: one Vega-Lite specification gives the interactive chart and the static SVG of each panel.

Colours are variables of the page, so that charts follow its light or dark scheme. Colour is never the only difference
between series. Requires the extra `report`.
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
from operator import attrgetter
from typing import Any, TypeAlias

from epicrisis.report.figures import PlotFigure, PlotMark

Spec: TypeAlias = dict[str, Any]

WIDTH, HEIGHT = 360, 260
"""Size of a panel in pixels; it fits a telephone. In plots along names the height depends on the number of rows."""
WIDE_WIDTH = 720
"""Width of the only panel of a figure in a wide window."""
_NAMESPACES = re.compile(r' (?:xmlns(?::xlink)?|version)="[^"]*"')
COLOURS = ("#0072b2", "#d55e00", "#00825f", "#a8508a", "#8a6a00", "#4a4a4a")
"""Colours of series on white, after Okabe and Ito, some darkened for contrast on paper. The style sheet has those for a
dark page under the same numbers."""
SHAPES = (
    "M1,0A1,1,0,1,1,-1,0A1,1,0,1,1,1,0Z",
    "M-.9,-.9H.9V.9H-.9Z",
    "M0,-1L1,.8H-1Z",
    "M0,-1L1,0L0,1L-1,0Z",
    "M-.35,-1H.35V-.35H1V.35H.35V1H-.35V.35H-1V-.35H-.35Z",
    "M0,1L1,-.8H-1Z",
    "M-1,0L.8,-1V1Z",
)
DASHES = ((1, 0), (7, 3), (2, 3), (10, 3, 2, 3), (4, 2))

_INK, _LINE, _PAPER = "var(--ink, #1b1b1b)", "var(--line, #d0d0d0)", "var(--paper, #ffffff)"
_TEXT = {"color": _INK, "fontSize": 12}
_ZERO = {"condition": {"test": "datum.value === 0", "value": _INK}, "value": _LINE}
"""Grid lines: a dark one marks zero, no difference."""
_NAME_LENGTH, _ROW_HEIGHT, _SERIES_HEIGHT = 20, 24, 15
"""Characters per line of a row's name; pixels of a row, and of each series in it."""
_MOST_TICKS = 8
_BOUND_NAME_X = 60
"""Pixels from the left edge to the name of a bound, to the right of the first figures of lines."""
_BUNDLE_SCRIPT = "window.vegaEmbed = vegaEmbed;"


@dataclass(frozen=True, slots=True)
class Style:
    """The look of a series in all figures of a section."""

    colour: str
    shape: str
    dash: tuple[int, ...]


def assign_styles(series: Iterable[str]) -> Mapping[str, Style]:
    """Assign a style to each series. Names that differ only in case and hyphens share one.

    Colours, shapes and dashes repeat with different periods, so the combinations differ.
    """
    numbers: dict[str, int] = {}
    styles = {}
    for name in series:
        i = numbers.setdefault(name.casefold().replace("-", ""), len(numbers))
        colour = i % len(COLOURS)
        variable = f"var(--c{colour}, {COLOURS[colour]})"
        styles[name] = Style(variable, SHAPES[i % len(SHAPES)], DASHES[i % len(DASHES)])
    return styles


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart."""

    title: str
    svg: str
    specification: str
    """JSON without any `<`, so that it cannot end an element of the page."""
    wide_svg: str = ""
    """The same chart for a wide window, if it is the only panel of its figure."""


def draw_panels(figure: PlotFigure, styles: Mapping[str, Style]) -> tuple[Panel, ...]:
    """Draw a chart for each panel of a figure. Raise ImportError without the extra `report`."""
    panels = []
    for name in figure.panels:
        marks = [mark for mark in figure.marks if mark.panel == name]
        draw = _line_chart if figure.plot.kind == "line" else _row_chart
        specification = {"config": _CONFIG, **draw(figure, marks, styles)}
        text = json.dumps(specification, separators=(",", ":")).replace("<", "\\u003c")
        wide = _draw({**specification, "width": WIDE_WIDTH}) if len(figure.panels) == 1 else ""
        panels.append(Panel(name, _draw(specification), text, wide))
    return tuple(panels)


def _draw(specification: Spec) -> str:
    """Return a chart as SVG. Inside a page it needs no namespaces."""
    import vl_convert

    return _NAMESPACES.sub("", vl_convert.vegalite_to_svg(specification), count=3)


@cache
def chart_program() -> str:
    """Return the script that draws specifications in a browser. Raise ImportError without the extra `report`."""
    import vl_convert

    return vl_convert.javascript_bundle(_BUNDLE_SCRIPT)


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
    # Names may be wider in the fonts of another machine than in those used to measure the chart.
    "padding": {"left": 16, "right": 8, "top": 6, "bottom": 4},
    "font": "Arial, Helvetica, sans-serif",
    "view": {"stroke": None},
    # The page describes each chart as one picture; its figures are in a table.
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


def _line_chart(figure: PlotFigure, marks: Sequence[PlotMark], styles: Mapping[str, Style]) -> Spec:
    """Draw a line through the figures of each series with their intervals, and dashed lines for bounds."""
    places = sorted({mark.x for mark in figure.marks if mark.x is not None}) or [0.0]
    # Places and numbers of documents are ticks; rates are not.
    has_ticks = len(places) <= _MOST_TICKS and all(map(float.is_integer, places))
    title, log2 = figure.plot.axis_title or figure.plot.along[0], figure.plot.log2
    margin = 0.05 * (places[-1] - places[0]) or 1.0
    low, high = (places[0] / 1.3, places[-1] * 1.3) if log2 else (places[0] - margin, places[-1] + margin)
    scale: Spec = {"domain": [low, high], "nice": False, **({"type": "log", "base": 2} if log2 else {})}
    axis: Spec = {"values": places, "grid": False} if has_ticks else {"tickCount": 5}
    data: list[Spec] = []
    bounds: list[PlotMark] = []
    for mark in marks:
        if mark.x is None:
            bounds.append(mark)
            continue
        # Shift the marks of each series a little, so that no interval hides another.
        shift = 0.05 * ((figure.series.index(mark.series) + 0.5) / len(figure.series) - 0.5) if has_ticks else 0.0
        place = mark.x * (high / low) ** shift if log2 else mark.x + shift * (high - low)
        data.append({**_datum(mark), "order": len(data), "x": place, "at": f"{mark.x:g}"})
    x: Spec = {"field": "x", "type": "quantitative", "title": title, "scale": scale, "axis": axis}
    y: Spec = {
        **_value_channel(figure),
        "scale": {"domain": _extent(figure), "nice": False},
        "axis": {
            "titleAngle": 0,
            "titleAlign": "left",
            "titleX": -34,
            "titleBaseline": "bottom",
            "gridColor": _ZERO,
            "titleY": -8 - 14 * (len(_title_lines(figure)) - 1),
        },
    }
    colour, dash = _series_channel("color", "colour", styles), _series_channel("strokeDash", "dash", styles)
    line = {"y": y, **colour, **dash, "order": {"field": "order", "type": "quantitative"}}
    layers: list[Spec] = [{"mark": {"type": "line", "strokeWidth": 2}, "encoding": line}]
    if not figure.many:
        interval = {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}, **colour}
        tooltip = _tooltip({"field": "at", "title": title})
        layers += [{"mark": "rule", "encoding": interval}, _point_layer({"y": y, "tooltip": tooltip}, styles)]
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "autosize": _FIT,
        "layer": [{"data": {"values": data}, "encoding": {"x": x}, "layer": layers}, *_bound_layers(bounds, y, styles)],
    }


def _bound_layers(marks: Sequence[PlotMark], y: Spec, styles: Mapping[str, Style]) -> list[Spec]:
    """Draw bounds with their names, alternately at the left and at the right, so that names do not overlap."""
    layers: list[Spec] = []
    for i, mark in enumerate(sorted(marks, key=lambda mark: mark.value)):
        place = {"align": "right", "x": "width"} if i % 2 else {"align": "left", "x": _BOUND_NAME_X}
        text = f"{mark.series} {mark.label.removesuffix(' %')}"
        name = {"type": "text", "text": text, "baseline": "bottom", "dy": -3, **_TEXT, **place}
        style = _series_channel("color", "colour", styles) | _series_channel("strokeDash", "dash", styles)
        encoding = {"y": y, **style, "tooltip": _tooltip()}
        rule: Spec = {"mark": {"type": "rule", "strokeWidth": 1.5}, "encoding": encoding}
        layers.append({"data": {"values": [_datum(mark)]}, "layer": [rule, {"mark": name, "encoding": {"y": y}}]})
    return layers


def _row_chart(figure: PlotFigure, marks: Sequence[PlotMark], styles: Mapping[str, Style]) -> Spec:
    """Draw a row for each name: points with their intervals, or stacked bars."""
    names = {}
    value = _value_channel(figure)
    data = []
    for mark, (start, end) in zip(marks, _bar_spans(marks), strict=True):
        # A plus sign may begin a line too: `self-consistency`, `+shuffling`.
        lines = "\n".join(textwrap.wrap(mark.row.replace("+", " \0+"), _NAME_LENGTH))
        names[mark.row] = lines.replace(" \0", "").replace("\0", "")
        data.append({**_datum(mark), "row": names[mark.row], "from": start, "to": end})
    bars = figure.plot.kind == "bars"
    # Several columns of figures in one row are drawn below each other; bars follow each other.
    series_per_row = 0 if bars or figure.value else max(Counter(mark.row for mark in marks).values())
    name_height = 14 * max(name.count("\n") + 1 for name in names.values()) + 6
    row_height = max(_ROW_HEIGHT, name_height, series_per_row * _SERIES_HEIGHT + 8)
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
    encoding: Spec = {"y": y}
    if series_per_row:
        encoding["yOffset"] = {"field": "series", "type": "nominal", "sort": None}
    if bars:
        layers = _bar_layers(figure, value, marks, styles)
    else:
        scale = {"domain": _extent(figure), "nice": False, "zero": False}
        x = {**value, "scale": scale, "axis": {**_AXIS, "gridColor": _ZERO}}
        low = {"field": "low", "type": "quantitative", "title": value["title"]}
        interval = {"x": low, "x2": {"field": "high"}, **_series_channel("color", "colour", styles)}
        points = _point_layer({"x": x, "tooltip": _tooltip({"field": "row"})}, styles)
        layers = [{"mark": "rule", "encoding": interval}, points]
    return {
        "data": {"values": data},
        "width": WIDTH,
        "height": len(names) * row_height + 14 * len(value["title"]) + 34,
        "autosize": _FIT,
        "encoding": encoding,
        "layer": layers,
    }


def _bar_layers(figure: PlotFigure, value: Spec, marks: Sequence[PlotMark], styles: Mapping[str, Style]) -> list[Spec]:
    """Draw bars on a scale of their own with their figures: inside if several fit, else after the end."""
    single = len(figure.series) == 1
    end = max(span[1] for span in _bar_spans(marks)) * (1.25 if single else 1.02) or 1.0
    # Counts are whole numbers.
    axis = _AXIS if figure.unit else {**_AXIS, "tickMinStep": 1}
    encoding = {
        "x": {**value, "field": "from", "scale": {"domain": [0, end], "nice": False}, "axis": axis},
        "x2": {"field": "to"},
        **_series_channel("fill", "colour", styles),
        **_series_channel("stroke", "colour", styles),
        "fillOpacity": {"condition": {"test": "datum.hollow", "value": 0}, "value": 0.25},
        "tooltip": _tooltip({"field": "row"}),
    }
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
    return [{"mark": "bar", "encoding": encoding}, text]


def _datum(mark: PlotMark) -> Spec:
    fields = ("series", "value", "low", "high", "detail", "label", "hollow")
    return dict(zip(fields, attrgetter(*fields)(mark), strict=True))


def _value_channel(figure: PlotFigure) -> Spec:
    return {"field": "value", "type": "quantitative", "title": _title_lines(figure)}


def _title_lines(figure: PlotFigure) -> list[str]:
    title = f"{figure.value} ({figure.unit})" if figure.value and figure.unit else figure.value or figure.unit
    return textwrap.wrap(title, 56)


def _series_channel(channel: str, part: str, styles: Mapping[str, Style]) -> Spec:
    """Return a channel that shows the series by a part of their style. The legend for all panels is on the page."""
    scale = {"domain": list(styles), "range": list(map(attrgetter(part), styles.values()))}
    return {channel: {"field": "series", "type": "nominal", "scale": scale, "legend": None}}


def _point_layer(encoding: Spec, styles: Mapping[str, Style]) -> Spec:
    fill = _series_channel("fill", "colour", styles)["fill"]
    return {
        "mark": {"type": "point", "size": 60, "strokeWidth": 1.5, "opacity": 1},
        "encoding": {
            **encoding,
            **_series_channel("shape", "shape", styles),
            **_series_channel("stroke", "colour", styles),
            "fill": {"condition": {"test": "!datum.hollow", **fill}, "value": _PAPER},
        },
    }


def _tooltip(*place: Spec) -> list[Spec]:
    """Return a tooltip with the series, the place, and the figure as text."""
    fields = [{"field": "series", "title": "series"}, *place, {"field": "detail", "title": "figure"}]
    return [{"type": "nominal", **field} for field in fields]


def _extent(figure: PlotFigure) -> tuple[float, float]:
    """Return the range of the figures with their intervals. Only shares may leave out 0."""
    ends: list[float] = [] if figure.unit == "%" else [0.0]
    for mark in figure.marks:
        ends.extend(end for end in (mark.value, mark.low, mark.high) if end is not None)
    low, high = min(ends), max(ends)
    if not figure.unit:
        return low, 1.05 * high or 1.0
    step = 10 if high - low > 20 else 5
    return step * math.floor(low / step), step * math.ceil((high + 1e-9) / step)


def _bar_spans(marks: Iterable[PlotMark]) -> list[tuple[float, float]]:
    """Return the start and end of each bar. Bars of a row follow each other."""
    ends: dict[tuple[str, str], float] = defaultdict(float)
    spans = []
    for mark in marks:
        start = ends[mark.panel, mark.row]
        ends[mark.panel, mark.row] = start + mark.value
        spans.append((start, start + mark.value))
    return spans
