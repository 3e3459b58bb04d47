"""Pictures of a grid: where buses stand, what is drawn, and the files it becomes."""

from gridpriv.drawing.files import picture_format, to_svg, write_drawing, write_picture
from gridpriv.drawing.network import draw_network
from gridpriv.drawing.parts import Drawing

__all__ = ["Drawing", "draw_network", "picture_format", "to_svg", "write_drawing", "write_picture"]
