"""Constants of the simulation of arrays beyond the papers' text: what was fitted, and to what."""

from ..fitted import Fitted

# The whole list. Held out: Anda's speed-ups, units and breakdown, Harmonia's areas and energies.
FITTED: dict[str, Fitted] = {
    "logic_area": Fitted(0.75, "", "Anda, table III, areas of the MXU and in total"),
    "logic_energy": Fitted(1.9, "", "Anda, table III, powers of the MXU and in total"),
    "fma_area": Fitted(2.07, "", "Anda, section V-D, area efficiency over speed-up at 0.1 % and at 1 %"),
    "sram_density": Fitted(0.79, "mm2/MiB", "Anda, table III, areas of both buffers (16 nm)"),
    "sram_bank": Fitted(32768, "byte", "Anda, table III, powers of both buffers: the power of two that comes nearest"),
    "tile": Fitted(64, "", "Anda, section V-D, energy efficiency at 0.1 % and at 1 %: rows and columns kept on chip"),
    "auxiliary_share": Fitted(
        0.5, "", "Harmonia, section V-D, least speed-ups of joint execution and of the sweep: FP16 area beside an array"
    ),
}


def fitted(name: str) -> float:
    return FITTED[name].value
