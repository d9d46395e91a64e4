"""Why cells of Anda's hardware deviate, as far as we know: item → row, column → one line."""

ONCE = (
    "what a unit does once a group, conversion, scaling and an FP32 sum that rounds once, is near two thirds of Anda's "
    "RTL: 7,792 of its 12,182 gates are there with 2 lanes, too; the paper does not say what its sums are"
)
CELLS = f"cells of 7 nm at 16 nm, not sized; {ONCE}"
FIGNA = (
    "FIGNA's RTL aligns FP16 activations and finds their exponent in every unit, where Anda's come converted; how the "
    "paper's FIGNA is built, and where it converts, is not in the text"
)
FIXED = (
    "of the 5.9 pJ that Anda's RTL takes for a group here, some 2.8 do not shrink with the mantissa: conversion, "
    "scaling, the FP32 sum, and what is loaded once a group"
)
POWER = (
    "RTL in cells of 7 nm that are not sized, scaled to 16 nm: 2.8 times the paper's, and its area is 2.5 times; the "
    "conversion that follows a group's sum switches with every plane; which part the paper's unit has cheaper is not "
    "known"
)
FIGNA_SHORT = "FIGNA's short variants are too expensive here: their float sum does not shrink with the mantissa"
IDLE = "idle most of the time, and neither leakage nor an idle part's clock is counted"
BANK = "a bank is a power of two: half as large would be as far below the paper"
FLAT = "by figure 17's shares energy must follow mantissas more than the paper's does, as ours does"

CAUSES: dict[str, dict[tuple[str, str], str]] = {
    "fig15": {
        ("over fp-fp", "area"): ONCE,
        ("over figna", "area"): f"{ONCE}; by the paper's efficiencies it is 127 %",
        ("over figna", "power"): FIGNA,
        **{
            (f"{bits} bits over {figna}", "energy efficiency"): FIGNA
            for bits, figna in ((8, "figna"), (4, "figna"), (11, "figna-m11"), (8, "figna-m8"))
        },
        ("8 bits over figna-m8", "area efficiency"): FIGNA_SHORT,
    },
    "fig16": {
        (f"average of models, {tolerance}", "area efficiency"): f"by speed as printed; area: {ONCE}"
        for tolerance in ("0.1 %", "1 %")
    },
    "fig17": {
        ("energy saved over fp-fp", "compute"): FIXED,
        ("energy saved over fp-fp", "SRAM"): "54 % would take 5.9 bits on average; Table II's saving gives 7.2",
        ("times less than figna", "SRAM"): "by Table III's powers of both buffers and 7.2 bits on average it is 1.82",
    },
    "table3": {
        ("MXU", "area"): CELLS,
        ("Total", "area"): f"the array: {CELLS}",
        ("MXU", "power"): POWER,
        ("Total", "power"): f"the array: {POWER}",
        ("BPC", "area"): "RTL of the structure alone: no packager, no buffers between stages",
        ("BPC", "power"): IDLE,
        ("Vector Unit", "area"): "64 FP16 multiply-adders, as RTL: no vector registers, no table of functions",
        ("Vector Unit", "power"): IDLE,
        ("Activation Buffer", "power"): BANK,
        ("Weight Buffer", "power"): BANK,
    },
    "fig18-speed": {
        ("LLaMA-13B, 0.1 %", "energy efficiency"): FLAT,
        ("LLaMA-13B, 5 %", "energy efficiency"): FLAT,
    },
}
