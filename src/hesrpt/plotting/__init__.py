"""Every figure of the project. ``draw_…`` returns a matplotlib figure, ``save_figure`` saves it.

Titles and colours of policies, fonts, axes and legends are defined in ``style`` alone.
"""

from hesrpt.plotting.comparisons import draw_comparison
from hesrpt.plotting.schedules import draw_schedule
from hesrpt.plotting.style import check_figure_path, get_style, get_styles, save_figure

__all__ = [
    "check_figure_path",
    "draw_comparison",
    "draw_schedule",
    "get_style",
    "get_styles",
    "save_figure",
]
