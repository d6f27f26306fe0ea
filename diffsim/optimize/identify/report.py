"""The report of a fit: one HTML file that needs no others, to send to a colleague.

It says first whether the model explains the data. Then come the parameters before and after, their correlations, the
residuals, and recorded and simulated curves for each sensor and window, drawn as SVG.
"""

import html
from collections.abc import Sequence

import numpy as np

from diffsim.optimize.identify.evidence import Evidence, FittedWindows, Identified

# most points of a curve: about one for each pixel
POINTS = 600
# width of a drawing, pixels
WIDTH = 640
# height of a drawing of readings, pixels; drawings of residuals have half of it
HEIGHT = 120
# most windows whose residuals are listed in the table
LISTED_WINDOWS = 12
STYLE = """body{font:15px/1.45 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left}.verdict{padding:.8em 1em;border-left:.4em solid;font-size:1.1em}
.good{border-color:#2a8a3e;background:#eef8f0}.bad{border-color:#c0392b;background:#fdf0ee}
svg{display:block;margin:.2em 0 1em}pre{white-space:pre-wrap}"""
# colors of the curves
RECORDED = "#888"
SIMULATED = "#0b62c4"
RESIDUAL = "#c0392b"


def report(
    title: str,
    good: bool,
    verdict: str,
    sentences: Sequence[str],
    evidence: Evidence,
    identified: Identified,
    samples: Sequence[tuple[str, FittedWindows]],
) -> str:
    """The HTML page of a report.

    Args:
      title: heading of the page.
      good: whether the verdict is shown in green (trust the result) or in red.
      verdict: whether to trust the result, in a sentence.
      sentences: the text below the verdict, such as how the search ended.
      evidence: whether the model explains the data, and why not.
      identified: the estimates.
      samples: (heading, windows) for the windows that were fitted and for those that were held out.
    """
    parts = [
        f"<!doctype html><html><head><meta charset='utf-8'><title>{html.escape(title)}</title>",
        f"<style>{STYLE}</style></head>",
        f"<body><h1>{html.escape(title)}</h1>",
        f"<p class='verdict {'good' if good else 'bad'}'>{html.escape(verdict)}</p>",
    ]
    if evidence.causes:
        parts.append(_listed("The residuals look like", evidence.causes))
    parts += [*(f"<p>{html.escape(line)}</p>" for line in sentences), "<h2>Parameters</h2>"]
    intervals, remarks = identified.in_words("{:.5g} to {:.5g}")
    columns = (identified.labels, identified.start, identified.values, intervals, remarks)
    rows = [
        (label, f"{start:.5g}", f"{value:.5g}", interval, remark)
        for label, start, value, interval, remark in zip(*columns, strict=True)
    ]
    parts.append(_table(("parameter", "before", "found", "95% interval", ""), rows))
    if identified.null_directions:
        parts.append(_listed("The data do not show", identified.null_directions))
    deviations = np.sqrt(np.maximum(np.diag(identified.covariance), 1e-300))
    correlations = identified.covariance / deviations[:, None] / deviations
    rows = [
        (f"{i} {label}", *(f"{value:.2f}" for value in row))
        for i, (label, row) in enumerate(zip(identified.labels, correlations, strict=True))
    ]
    if len(rows) > 1 and not identified.withheld:
        parts += ["<h2>Correlations</h2>", _table(("", *(str(i) for i in range(len(rows)))), rows)]
    rows = []
    for i, name in enumerate(samples[0][1].names):
        windows = ", ".join(f"{value:.2g}" for value in evidence.by_window[:LISTED_WINDOWS, i])
        more = " ..." if len(evidence.by_window) > LISTED_WINDOWS else ""
        noise = samples[0][1].noise[i]
        size = evidence.size[i]
        rows.append((name, f"{noise:.3g}", f"{size:.3g}", f"{evidence.white[i]:.2g}", windows + more))
    head = ("reading", "noise", "residual over noise", "probability if random", "by window")
    parts += ["<h2>Residuals</h2>", _table(head, rows)]
    for heading, sample in samples:
        if len(sample.errors):
            parts += [f"<h2>{html.escape(heading)}</h2>", _curves(sample)]
    return "\n".join([*parts, "</body></html>"])


def _listed(heading: str, lines: Sequence[str]) -> str:
    """A list with a heading."""
    return f"<p>{heading}:</p><ul>{''.join(f'<li>{html.escape(line)}</li>' for line in lines)}</ul>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of text."""
    cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    return f"<table><tr>{cells}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _curves(sample: FittedWindows) -> str:
    """Recorded and simulated readings and the residuals, windows one after the other."""
    windows, rows = sample.measured.shape[:2]
    span = f"{windows * rows * sample.timestep:.3g} s" + (
        f", {windows} windows one after the other" if windows > 1 else ""
    )
    parts = [
        f"<p>{span}: <span style='color:{RECORDED}'>recorded</span>, <span style='color:{SIMULATED}'>simulated</span>, "
        f"<span style='color:{RESIDUAL}'>simulated minus recorded, divided by the noise</span></p>"
    ]
    for i, name in enumerate(sample.names):
        parts.append(f"<b>{html.escape(name)}</b>")
        parts.append(
            _drawing([(sample.measured[..., i], RECORDED), (sample.readings[..., i], SIMULATED)], height=HEIGHT)
        )
        parts.append(_drawing([(sample.errors[..., i], RESIDUAL)], height=HEIGHT // 2))
    return "\n".join(parts)


def _drawing(curves: Sequence[tuple[np.ndarray, str]], height: int) -> str:
    """Curves (windows, T) over rows, on one scale with its limits; windows are separate."""
    stacked = np.concatenate([curve for curve, _ in curves])
    finite = stacked[np.isfinite(stacked)]
    if not finite.size:
        return "<p>nothing was measured</p>"
    low = float(finite.min())
    high = float(finite.max())
    span = (high - low) or 1.0
    windows, rows = curves[0][0].shape
    index = np.unique(np.linspace(0, rows - 1, max(POINTS // windows, 2)).astype(int))
    lines = []
    wide = WIDTH / windows
    for window in range(windows):
        lines.append(f"<path d='M{window * wide:.1f} 0V{height}' stroke='#ddd'/>")
        for curve, color in curves:
            across = wide * (window + index / max(rows - 1, 1))
            down = 2 + (height - 4) * (high - curve[window, index]) / span
            places = [f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True) if np.isfinite(y)]
            lines.append(f"<polyline fill='none' stroke='{color}' stroke-width='1.2' points='{' '.join(places)}'/>")
    ends = (
        f"<text x='{WIDTH + 6}' y='12' font-size='11'>{high:.3g}</text>"
        f"<text x='{WIDTH + 6}' y='{height - 2}' font-size='11'>{low:.3g}</text>"
    )
    frame = f"<rect width='{WIDTH}' height='{height}' fill='none' stroke='#ddd'/>"
    return f"<svg width='{WIDTH + 70}' height='{height}'>{frame}{''.join(lines)}{ends}</svg>"
