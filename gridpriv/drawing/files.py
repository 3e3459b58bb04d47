"""A drawing as SVG text, or as PNG or PDF by matplotlib: the same picture in all of them."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from gridpriv.core.errors import one_of
from gridpriv.core.files import beside
from gridpriv.core.text import slug
from gridpriv.drawing.parts import Drawing, Label, Mark, Part, Stroke

FORMATS = ("png", "svg", "pdf")
FONTS = ("DejaVu Sans", "Arial", "sans-serif")
DPI = 200
DASH = (4.0, 2.2)


def write_drawing(drawing: Drawing, path: str | Path, *, private: bool) -> Path:
    """Write a drawing whole or not at all; the file's ending says which format.

    Parameters
    ----------
    drawing : Drawing
    path : path
    private : bool
        Whether only its owner may read the file.

    Raises
    ------
    InputError
        For another ending than .png, .svg or .pdf.
    StorageError
        If the file cannot be written.
    """
    file = Path(path)
    kind = picture_format(file)
    with beside(file, private=private) as part:
        if kind == "svg":
            part.write(f"{to_svg(drawing)}\n".encode())
        else:
            meta = {"Title": drawing.title, **({"CreationDate": None} if kind == "pdf" else {})}
            _figure(drawing).savefig(part, format=kind, dpi=DPI, metadata=meta)
    return file


def picture_format(path: str | Path) -> str:
    """Return the format that a file's ending names; :class:`InputError` for any other."""
    kind = Path(path).suffix.lstrip(".").lower()
    one_of("ending of the picture", kind, FORMATS)
    return kind


def to_svg(drawing: Drawing) -> str:
    """Return a drawing as SVG with title, description, and a tip on every bus and branch."""
    name = slug(drawing.title)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="map" id="{name}" role="img" '
        f'aria-labelledby="{name}-t {name}-d" '
        f'viewBox="0 0 {drawing.width:.0f} {drawing.height:.0f}" '
        f'font-family="{", ".join(FONTS)}">'
        f'<title id="{name}-t">{escape(drawing.title)}</title>'
        f'<desc id="{name}-d">{escape(drawing.alt)}</desc>'
        f"{''.join(_svg(part) for part in drawing.parts)}</svg>"
    )


def _svg(part: Part) -> str:
    if isinstance(part, Label):
        return _svg_label(part)
    text = _svg_stroke(part) if isinstance(part, Stroke) else _svg_mark(part)
    return f'<g class="bus" data-tip="{escape(part.tip)}">{text}</g>' if part.tip else text


def _svg_stroke(part: Stroke) -> str:
    (x1, y1), (x2, y2) = part.start, part.end
    if part.dashed:
        look = f' stroke-dasharray="{DASH[0] * part.width:.1f} {DASH[1] * part.width:.1f}"'
    else:
        look = ' stroke-linecap="round"'
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{part.colour}" '
        f'stroke-width="{part.width:.1f}"{look}/>'
    )


def _svg_mark(part: Mark) -> str:
    (x, y), r = part.at, part.radius
    look = f'fill="{part.fill}"'
    if part.opacity < 1:
        look += f' fill-opacity="{part.opacity:g}"'
    if part.edge_width > 0:
        look += f' stroke="{part.edge}" stroke-width="{part.edge_width:g}"'
    if part.square:
        at = f'x="{x - r:.1f}" y="{y - r:.1f}" width="{2 * r:.1f}" height="{2 * r:.1f}"'
        return f"<rect {at} {look}/>"
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}" {look}/>'


def _svg_label(part: Label) -> str:
    if not part.text:
        return ""
    look = f'font-size="{part.size:.1f}" fill="{part.colour}" text-anchor="{part.anchor}"'
    look += ' font-weight="bold"' if part.bold else ""
    text = f'x="{part.at[0]:.1f}" y="{part.at[1]:.1f}" {look}'
    # typst and old browsers know no paint-order: the halo is a text of its own
    halo = f'<text {text} stroke="#FFFFFF" stroke-width="3" stroke-linejoin="round">'
    words = escape(part.text)
    return (f"{halo}{words}</text>" if part.halo else "") + f"<text {text}>{words}</text>"


def _figure(drawing: Drawing) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(drawing.width / 72.0, drawing.height / 72.0), facecolor="white")
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0.0, drawing.width)
    axes.set_ylim(drawing.height, 0.0)
    axes.set_axis_off()
    for order, part in enumerate(drawing.parts):
        if isinstance(part, Label):
            _add_label(axes, part, order)
        else:
            axes.add_artist(_artist(part, order))
    return figure


def _artist(part: Stroke | Mark, order: int) -> Any:
    from matplotlib.colors import to_rgba
    from matplotlib.lines import Line2D
    from matplotlib.patches import Circle, Rectangle

    if isinstance(part, Stroke):
        (x1, y1), (x2, y2) = part.start, part.end
        style: Any = (0, DASH) if part.dashed else "solid"
        return Line2D(
            [x1, x2], [y1, y2], color=part.colour, linewidth=part.width, linestyle=style,
            zorder=order, solid_capstyle="round", dash_capstyle="butt",
        )  # fmt: skip
    (x, y), r = part.at, part.radius
    shape: Any = Rectangle((x - r, y - r), 2 * r, 2 * r) if part.square else Circle((x, y), r)
    shape.set(facecolor=to_rgba(part.fill, part.opacity), linewidth=part.edge_width, zorder=order)
    shape.set_edgecolor(part.edge if part.edge_width > 0 else "none")
    return shape


def _add_label(axes: Any, part: Label, order: int) -> None:
    from matplotlib.patheffects import Normal
    from matplotlib.patheffects import Stroke as Outline

    side = {"start": "left", "middle": "center", "end": "right"}[part.anchor]
    text = axes.text(
        *part.at, part.text, fontsize=part.size, color=part.colour, ha=side, va="baseline",
        fontweight="bold" if part.bold else "normal", zorder=order, parse_math=False,
        fontfamily=FONTS[0],
    )  # fmt: skip
    if part.halo:
        text.set_path_effects([Outline(linewidth=3.0, foreground="white"), Normal()])
