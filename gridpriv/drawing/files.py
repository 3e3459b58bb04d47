"""A drawing as SVG, and as PNG or PDF that Typst makes of that: one picture in all of them."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Literal, cast

from gridpriv.core.errors import one_of
from gridpriv.core.files import write_bytes
from gridpriv.core.text import slug
from gridpriv.drawing.chart import FONTS
from gridpriv.drawing.parts import Drawing, Label, Mark, Part, Stroke

Format = Literal["png", "svg", "pdf"]
FORMATS: tuple[Format, ...] = ("png", "svg", "pdf")
PPI = 200.0
DASH = (4.0, 2.2)


def write_drawing(drawing: Drawing, path: str | Path, *, private: bool) -> Path:
    """Write a drawing whole or not at all; the file's ending says which format.

    Parameters
    ----------
    private : bool
        Whether only its owner may read the file.

    Raises
    ------
    InputError
        For another ending than .png, .svg or .pdf.
    StorageError
        If the file cannot be written.
    """
    return write_picture(to_svg(drawing), path, private=private, title=drawing.title)


def write_picture(svg: str, path: str | Path, *, private: bool, title: str = "") -> Path:
    """Write an SVG as :func:`write_drawing` writes a drawing."""
    file = Path(path)
    kind = picture_format(file)
    content = f"{svg}\n".encode() if kind == "svg" else _painted(svg, kind, title)
    write_bytes(file, content, private=private)
    return file


def _painted(svg: str, kind: Literal["png", "pdf"], title: str) -> bytes:
    import typst

    source = (
        f"#set document(title: {typst_string(title)}, date: none)\n"
        "#set page(width: auto, height: auto, margin: 0pt, fill: white)\n"
        f'#image(bytes({typst_string(svg)}), format: "svg")'
    )
    return bytes(typst.compile(source.encode(), format=kind, ppi=PPI))


def typst_string(text: str) -> str:
    """Return a text as Typst's source quotes it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def picture_format(path: str | Path) -> Format:
    """Return the format that a file's ending names; :class:`InputError` for any other."""
    kind = Path(path).suffix.lstrip(".").lower()
    one_of("ending of the picture", kind, FORMATS)
    return cast(Format, kind)


def to_svg(drawing: Drawing) -> str:
    """Return a drawing as SVG with title, description, and a tip on every bus and branch."""
    name = slug(drawing.title)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="map" id="{name}" role="img" '
        f'aria-labelledby="{name}-t {name}-d" '
        f'viewBox="0 0 {drawing.width:.0f} {drawing.height:.0f}" '
        f'width="{drawing.width:.0f}" height="{drawing.height:.0f}" font-family="{FONTS}">'
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
        look = "" if part.blunt else ' stroke-linecap="round"'
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
