"""Hardware of the papers' units as synthesizable Amaranth components, equal to `simulate.units` to the bit and cycle.

Each unit is a component that takes a frozen dataclass of parameters, named as in its paper; `units` lists them.
"""

from .._extras import need_rtl

need_rtl(__name__)
