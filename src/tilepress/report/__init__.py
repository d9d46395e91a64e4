"""Records and results as tables and plots: pages that need nothing but themselves. Runs nothing."""

from .._extras import need_lab
from ..records import RecordsError

need_lab(__name__)

from .assembly import sections
from .blocks import Section
from .export import markdown_report, write_csv
from .page import render_page
from .reading import read_records

__all__ = ["RecordsError", "Section", "markdown_report", "read_records", "render_page", "sections", "write_csv"]
