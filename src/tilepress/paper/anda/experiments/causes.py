"""Why cells of Anda's hardware deviate, as far as we know: item → row, column → one line."""

FLOAT_SUM = (
    "RTL whose FP32 sums round once, in cells that nothing made smaller: FIGNA's one lane, little else, takes half of "
    "Anda's unit; the paper does not say what its sums are"
)
CELLS = f"cells of 7 nm at 16 nm; {FLOAT_SUM}"
CLOCKED = "half of what Anda's RTL takes are clock pins of flip-flops, in every cycle: nothing gates them"
SWITCHED = (
    "RTL in cells of 7 nm at 16 nm, where gates alone take three to four times what parts at 45 nm do, both scaled by "
    f"Stillmaker and Baas; {CLOCKED}"
)
BITS = f"a bit of a mantissa costs a cycle's clock, whatever its weights do: {CLOCKED}"
FIGNA_SHORT = "FIGNA's short variants are too expensive here: their float sum does not shrink with the mantissa"
IDLE = "idle most of the time, and neither leakage nor an idle part's clock is counted"
BANK = "a bank is a power of two: half as large would be as far below the paper"
FLAT = "by figure 17's shares energy must follow mantissas more than the paper's does, as ours does"

CAUSES: dict[str, dict[tuple[str, str], str]] = {
    "fig15": {
        ("over fp-fp", "area"): f"{FLOAT_SUM}; FP-FP's weights and products are small beside its four",
        ("over figna", "area"): f"{FLOAT_SUM}; by the paper's efficiencies it is 127 %",
        ("8 bits over figna", "area efficiency"): FLOAT_SUM,
        ("4 bits over figna", "area efficiency"): FLOAT_SUM,
        ("over fp-fp", "power"): BITS,
        ("over ifpu", "power"): f"{BITS}, as a bit of a weight does in iFPU's",
        ("8 bits over figna", "energy efficiency"): BITS,
        ("4 bits over figna", "energy efficiency"): BITS,
        ("8 bits over figna-m8", "area efficiency"): FIGNA_SHORT,
    },
    "fig16": {
        (f"average of models, {tolerance}", "area efficiency"): f"by speed as printed; area: {FLOAT_SUM}"
        for tolerance in ("0.1 %", "1 %")
    }
    | {
        (
            f"average of models, {tolerance}",
            "energy efficiency",
        ): f"compute is near half of Anda's energy here: {SWITCHED}"
        for tolerance in ("0.1 %", "1 %")
    },
    "fig17": {
        ("energy saved over fp-fp", "compute"): BITS,
        ("energy saved over fp-fp", "SRAM"): "54 % would take 5.9 bits on average; Table II's saving gives 7.2",
        ("times less than figna", "SRAM"): "by Table III's powers of both buffers and 7.2 bits on average it is 1.82",
        ("times less than figna", "DRAM"): "activations of 16 bits over 7.3, each read as often",
    },
    "table3": {
        ("MXU", "area"): CELLS,
        ("Total", "area"): f"the array: {CELLS}",
        ("MXU", "power"): SWITCHED,
        ("Total", "power"): f"the array: {SWITCHED}",
        ("BPC", "area"): "RTL of the structure alone: no packager, no buffers between stages",
        ("BPC", "power"): IDLE,
        ("Vector Unit", "area"): "64 multipliers and adders alone at 45 nm: no registers, no table of functions",
        ("Vector Unit", "power"): IDLE,
        ("Activation Buffer", "power"): BANK,
        ("Weight Buffer", "power"): BANK,
    },
    "fig18-speed": {
        ("LLaMA-13B, 0.1 %", "energy efficiency"): f"{FLAT}; and compute is more than by parts: {CLOCKED}",
    },
}
