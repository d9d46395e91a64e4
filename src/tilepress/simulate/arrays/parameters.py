"""Constants of the simulation of arrays beyond the papers' text: what was fitted, and what was chosen with which cells
in sight."""

from ...evidence import Cells, Choice, Fitted

_ENERGY_EFFICIENCY = Cells("anda/fig16", "average of models, *", "energy efficiency")
_BUFFERS = "* Buffer"

# The whole list.
FITTED: dict[str, Fitted] = {
    "sram_density": Fitted(0.79, "mm2/MiB", (Cells("anda/table3", _BUFFERS, "area"),), "at 16 nm"),
    "sram_bank": Fitted(
        32768, "byte", (Cells("anda/table3", _BUFFERS, "power"),), "the power of two that comes nearest"
    ),
    "tile": Fitted(64, "", (_ENERGY_EFFICIENCY,), "rows and columns kept on chip"),
    "auxiliary_share": Fitted(
        1.0,
        "",
        (Cells("harmonia/fig16-joint", "least average", "speed-up"), Cells("harmonia/fig19", "*", "least speed-up")),
        "FP16 area beside an array that does not attend",
    ),
}

CHOICES: dict[str, Choice] = {
    "table_3_whole": Choice(
        "constants were fitted to some rows, with all powers and the areas of memories in sight",
        (
            Cells("anda/table3", "*", "power"),
            *(Cells("anda/table3", row, "area") for row in (_BUFFERS, "Vector Unit", "Total")),
        ),
    ),
    "joint_whole": Choice(
        "the size of the FP16 array beside rivals was fitted with all of both items in sight",
        (Cells("harmonia/fig16-joint"), Cells("harmonia/fig19")),
    ),
    "anda_group_cycles": Choice(
        "a group takes m + 1 cycles: 16/(m + 1) gives the printed speed-ups where 16/m does not",
        (
            Cells("anda/fig16", "average of models, *", "speed-up"),
            Cells("anda/fig16", "average of models, *", "area efficiency"),
            Cells("anda/fig18-speed", "*", "speed-up"),
        ),
    ),
    "figna_variants": Choice(
        "FIGNA-M11 and -M8 are 16/11 and 16/8 as fast as the baseline",
        (Cells("anda/fig16", "average of models, *", "speed-up over FIGNA's variant"),),
    ),
    "fig18_mantissas": Choice(
        "five bits everywhere at 5 %: the text has no tuple", (Cells("anda/fig18-speed", "LLaMA-13B, 5 %"),)
    ),
    "synthesis_flow": Choice(
        "clock gates and the smallest flip-flops came into synthesis, as tools have them by default, after areas and "
        "energies without them had been seen beside all of these cells; nothing else was varied",
        (
            Cells("anda/fig15"),
            *(Cells("anda/fig16", "average of models, *", f"{what} efficiency") for what in ("area", "energy")),
            Cells("anda/fig17", "*", "compute"),
            Cells("anda/fig18-speed", "*", "energy efficiency"),
            *(Cells("anda/table3", row, "area") for row in ("MXU", "BPC", "Vector Unit", "Total")),
            Cells("anda/table3", "*", "power"),
            Cells("harmonia/fig17"),
            *(Cells(f"harmonia/{item}", "*", "* efficiency") for item in ("fig16-linear", "fig16-joint")),
            Cells("harmonia/fig19", "*", "*energy efficiency"),
            *(Cells("harmonia/synthesis", "Harmonia", column) for column in ("area", "power", "M8*")),
            Cells("harmonia/fig16-linear", "largest of a model", "speed-up"),  # a ratio of areas of units
            Cells("harmonia/converter"),
        ),
    ),
    "harmonia_columns": Choice(
        "a PE is two columns to its buffers and holds 128 pairs",
        (Cells("harmonia/synthesis", "Harmonia", "power"), Cells("harmonia/fig17", "M8W4", "largest area efficiency")),
    ),
    "harmonia_buffers": Choice(
        "buffers of 1 MiB each: the paper does not say, and its area agrees",
        (Cells("harmonia/synthesis", "Harmonia", "area"),),
    ),
    "harmonia_rate": Choice(
        "32 products a PE and cycle, from its GOPS/W and its power",
        (Cells("harmonia/synthesis", "Harmonia", "M8*"), Cells("harmonia/fig17", "M8M8 over M8W4")),
    ),
    "column_major": Choice(
        "order of tiles of Anda's machines, read with the saved energies in sight",
        (Cells("anda/fig17"), _ENERGY_EFFICIENCY),
    ),
}


def fitted(name: str) -> float:
    return FITTED[name].value
