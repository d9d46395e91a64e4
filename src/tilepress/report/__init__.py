"""Records and results as plots: pages that need nothing but themselves. Runs nothing."""

from .charts import Series, line_chart, write_page
from .reproductions import item_charts

__all__ = ["Series", "item_charts", "line_chart", "write_page"]
