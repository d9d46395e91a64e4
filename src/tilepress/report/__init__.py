"""Records and results as plots: pages that need nothing but themselves. Runs nothing."""

from .charts import Series, line_chart, write_page

__all__ = ["Series", "line_chart", "write_page"]
