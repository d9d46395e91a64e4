"""Why cells of Harmonia's hardware deviate, as far as we know: item → row, column → one line."""

ANDA = "Anda with 4 bits: by Anda's own structure and results its unit is cheaper than as Harmonia re-implemented it"
FP16 = "over FP16 arrays, whose products and sums have constants of faster, larger units than 300 MHz needs"
SUM = "over Anda with 4 bits, whose RTL sums in FP32 once for 64 lanes, and FP16 × INT4 units, counted from parts"
FIGNA = "over FIGNA, whose RTL has four lanes for a float sum; FP16 units, counted from parts, are smaller"

CAUSES: dict[str, dict[tuple[str, str], str]] = {
    "fig17": {
        ("M8W4", "least area efficiency"): SUM,
        ("M8W4", "largest area efficiency"): FIGNA,
        ("M8W4", "least energy efficiency"): ANDA,
        ("M8W4", "largest energy efficiency"): FP16,
        ("M8M8 over M8W4", "energy efficiency"): "what happens once a group does not double, and no scale is applied",
    },
    "fig16-linear": {
        ("least average", "area efficiency"): SUM,
        ("least average", "energy efficiency"): ANDA,
        ("largest average", "area efficiency"): "with equal areas it is the speed-up, of which the paper prints 4.89",
    },
    "fig16-joint": {
        ("least average", "energy efficiency"): ANDA,
        ("largest of a model", "area efficiency"): FIGNA,
    },
    "fig19": {
        ("2K to 16K", "least energy efficiency"): ANDA,
        ("2K to 16K", "largest energy efficiency"): f"{FP16}; the paper has 3.99 on average at 2K",
    },
    "synthesis": {
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
