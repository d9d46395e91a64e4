"""Why cells of Harmonia's hardware deviate, as far as we know: item → row, column → one line."""

ANDA = (
    "over Anda with 4 bits, whose RTL takes as much for a product as Harmonia's, with mantissas half as long; the "
    "paper says neither with which mantissas it has Anda nor what its unit takes"
)
ANDA_AREA = (
    "over Anda with 4 bits, whose RTL is mostly what it does once a group, with an FP32 sum; the paper says neither "
    "what its sums are nor which rival is least"
)
FP16 = (
    "over FP16 arrays, whose RTL sums in FP16; the paper says nothing of sums: with FP-FP's, in FP32, compute would "
    "take half as much again"
)
FIGNA = (
    "over FIGNA, whose RTL aligns activations and sums in FP32 for every four lanes; how the paper's FIGNA is built is "
    "not said"
)
CELLS = "RTL in cells of 7 nm at 28 nm, not sized: 690 mW are the array's"
SHARED = "four groups of M8W4 and two of M8M8 are a round; what follows each group's sum is done for half as many"

CAUSES: dict[str, dict[tuple[str, str], str]] = {
    "fig17": {
        ("M8W4", "least area efficiency"): ANDA_AREA,
        ("M8W4", "least energy efficiency"): ANDA,
        ("M8M8 over M8W4", "energy efficiency"): SHARED,
    },
    "fig16-linear": {
        ("least average", "area efficiency"): ANDA_AREA,
        ("least average", "energy efficiency"): ANDA,
        ("largest average", "energy efficiency"): FP16,
        ("largest average", "area efficiency"): "with equal areas it is the speed-up, of which the paper prints 4.89",
    },
    "fig16-joint": {
        ("largest of a model", "area efficiency"): FIGNA,
        (
            "average of all",
            "energy efficiency",
        ): "of seven rivals, three of them Anda; with which mantissas the paper has it, and of how many rivals "
        "its mean is, is not said",
    },
    "fig19": {
        (
            "2K to 16K",
            "largest speed-up",
        ): "over FIGNA; the paper's is below its own 4.62 at 2K, which length hardly changes",
        (
            "2K to 16K",
            "largest energy efficiency",
        ): "over FP16 arrays at 2K tokens, where the paper itself has 3.99 on average",
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
        ): "both are RTL, eight values a cycle; the quantiser's structure is ours, a divider a row, the text has none",
    },
}
