"""Models of hardware that step through time, tile by tile; same machines and formats as the analytic model."""

from .._extras import need_lab

need_lab(__name__)
