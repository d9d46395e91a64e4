"""What a closed submodule holds, in a line."""

from collections import Counter

from ..synthesis import MEMORY
from .logic import OPERATORS, is_operator
from .netlist import Modules, flattened


def holdings(modules: Modules, module: str) -> str:
    """Bits of registers and memories, and operators that multiply."""
    cells = flattened(modules, module, len(modules)).cells
    registers = sum(len(cell.outputs["Q"]) for cell in cells if cell.is_register)
    memory = sum(
        int(cell.parameters["SIZE"], 2) * int(cell.parameters["WIDTH"], 2) for cell in cells if cell.type == MEMORY
    )
    counted = Counter(OPERATORS[cell.type] for cell in cells if is_operator(cell))
    lines = [f"{registers:,} bit in registers"] if registers else []
    lines += [f"{memory:,} bit in memories"] if memory else []
    return "\n".join([*lines, operators_text(counted)] if counted else lines)


def operators_text(operators: Counter[str]) -> str:
    """64 add, 8 multiply: multipliers first, then what there is most of."""
    order = sorted(operators.items(), key=lambda one: (one[0] != "multiply", -one[1], one[0]))
    return ", ".join(f"{count} {name}" for name, count in order)
