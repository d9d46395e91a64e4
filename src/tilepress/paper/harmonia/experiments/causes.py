"""Why cells of Harmonia's hardware deviate, as far as we know: item → row, column → one line."""

ANDA = "over Anda with 4 bits, half of whose energy as RTL are clock pins of flip-flops that nothing gates"
PARTS = "counted from parts at 45 nm, which give units 0.2 to 0.6 of the energy that RTL takes, Harmonia's 0.5"
FP16 = f"over FIGNA; FP16 arrays, over which the paper's would be, are {PARTS}"
CELLS = "RTL in cells of 7 nm at 28 nm: gates take three to four times what parts at 45 nm do"
SUM = "over Anda with 4 bits, whose RTL sums in FP32 once for 64 lanes, and FP16 × INT4 units, counted from parts"
FIGNA = "over FIGNA, whose RTL has four lanes for a float sum; FP16 units, counted from parts, are smaller"

CAUSES: dict[str, dict[tuple[str, str], str]] = {
    "fig17": {
        ("M8W4", "least area efficiency"): SUM,
        ("M8W4", "largest area efficiency"): FIGNA,
        ("M8W4", "least energy efficiency"): f"over FP16 × INT4 units, {PARTS}",
        ("M8W4", "largest energy efficiency"): FP16,
    },
    "fig16-linear": {
        ("least average", "area efficiency"): SUM,
        ("least average", "energy efficiency"): ANDA,
        ("largest average", "energy efficiency"): FP16,
        ("largest of a model", "energy efficiency"): FP16,
        ("largest average", "area efficiency"): "with equal areas it is the speed-up, of which the paper prints 4.89",
    },
    "fig16-joint": {
        ("least average", "energy efficiency"): ANDA,
        ("largest average", "energy efficiency"): FP16,
        ("largest of a model", "energy efficiency"): FP16,
        ("largest of a model", "area efficiency"): FIGNA,
    },
    "fig19": {
        ("2K to 16K", "largest energy efficiency"): f"{FP16}; the paper has 3.99 on average at 2K",
    },
    "synthesis": {
        ("Harmonia", "power"): CELLS,
        ("Harmonia", "M8W4 and M8M4"): CELLS,
        ("Harmonia", "M8M8"): CELLS,
        (
            "Harmonia",
            "area",
        ): "buffers of 1 MiB each are assumed, and they are most of it; RTL in cells of 7 nm at 28 nm",
    },
    "converter": {
        (
            "online quantiser over BFP converter",
            "area",
        ): "the quantiser's structure is ours, counted from parts at 45 nm",
    },
}
