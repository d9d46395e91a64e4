"""Block diagrams of units, drawn from the design as Yosys reads it.

`netlist` has the design's cells, with submodules opened down to a depth; `elements` and `wires` what of them is drawn
as a box, `naming` under which names and which of them as one; `logic` follows nets back through operators, `graph` has
the boxes and the arrows between them, `dot` its text, `diagram` chooses the depth, and `rendering` writes files.
"""

from .diagram import diagram_of
from .netlist import modules_of, part_of
from .rendering import check_ending, dot_hash, hash_in, write

__all__ = ["check_ending", "diagram_of", "dot_hash", "hash_in", "modules_of", "part_of", "write"]
