"""Pictures of a grid: where buses stand, what is drawn, and the files it becomes."""

from gridpriv.report.drawing.files import picture_format, to_svg, write_drawing
from gridpriv.report.drawing.layout import bus_positions
from gridpriv.report.drawing.network import draw_network
from gridpriv.report.drawing.parts import Drawing

__all__ = ["Drawing", "bus_positions", "draw_network", "picture_format", "to_svg", "write_drawing"]
