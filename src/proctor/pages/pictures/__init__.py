"""Small pictures as SVG: each says in words what it shows, and takes its colours from the style sheet. Templates draw those named here."""

from proctor.pages.pictures.bar import draw_share
from proctor.pages.pictures.histogram import draw_histogram
from proctor.pages.pictures.history import draw_history
from proctor.pages.pictures.preview import draw_preview
from proctor.pages.pictures.rates import draw_rates
from proctor.pages.pictures.trend import draw_trend
from proctor.pages.pictures.waterfall import draw_span

__all__ = [
    "draw_histogram", "draw_history", "draw_preview", "draw_rates", "draw_share", "draw_span", "draw_trend",
]  # fmt: skip
