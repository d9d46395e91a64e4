"""DECA's items: tables 1 to 7, figures 3 to 5 and 11 to 18."""

from .figures import FIGURES
from .tables import TABLES

ITEMS = (*TABLES, *FIGURES)
