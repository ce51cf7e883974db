"""Curves over steps as an SVG that needs nothing beside it, in the manner of a run's `loss.svg`."""

import html
import math
from dataclasses import dataclass

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 800, 330, 60, 20, 40, 35


@dataclass
class Curve:
    name: str
    colour: str
    width: float
    values: list
    first: int = 1  # the step of the first value


@dataclass
class Panel:
    title: str
    curves: list


def step_of(span):
    """1, 2 or 5 times a power of ten: some five of them are in a span."""
    rough = max(span / 5, 1e-12)
    power = 10 ** math.floor(math.log10(rough))
    return next(n for n in (1, 2, 5, 10) if n * power >= rough * 0.999) * power


def panel_lines(panel, top):
    values = [value for curve in panel.curves for value in curve.values]
    last = max(curve.first + len(curve.values) - 1 for curve in panel.curves)
    each = step_of(max(values) - min(values))
    low, high = math.floor(min(values) / each) * each, math.ceil(max(values) / each) * each
    high = max(high, low + each)
    x = lambda step: LEFT + step / last * (WIDTH - LEFT - RIGHT)
    y = lambda value: top + TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)
    yield f'<text x="{LEFT}" y="{top + 24}" font-size="14">{html.escape(panel.title)}</text>'
    for n in range(round((high - low) / each) + 1):
        at = y(low + n * each)
        yield f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
        yield f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{low + n * each:.6g}</text>'
    each = max(1, step_of(last))
    for n in range(int(last // each) + 1):
        at = x(n * each)
        yield f'<path d="M{at:.1f} {top + TOP}V{top + HEIGHT - BOTTOM}" stroke="#ddd"/>'
        yield f'<text x="{at:.1f}" y="{top + HEIGHT - BOTTOM + 16}" text-anchor="middle">{n * each:.6g}</text>'
    for n, curve in enumerate(panel.curves):
        points = " ".join(f"{x(curve.first + k):.1f},{y(value):.1f}" for k, value in enumerate(curve.values))
        yield f'<polyline fill="none" stroke="{curve.colour}" stroke-width="{curve.width}" points="{points}"/>'
        place = f'x="{WIDTH - RIGHT - 8}" y="{top + TOP + 18 + 15 * n}"'
        yield f'<text {place} text-anchor="end" fill="{curve.colour}">{html.escape(curve.name)}</text>'


def draw(panels):
    """The panels, one below the other."""
    height = HEIGHT * len(panels)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for n, panel in enumerate(panels):
        lines += panel_lines(panel, HEIGHT * n)
    return "\n".join(lines + ["</svg>"]) + "\n"
