"""Why cells of DECA deviate, as far as we know: item → row, column → one line."""

REAL = "the machine reached 0.67 to 0.73 of its R-S; ours has the share of 8-bit kernels, which is 0.87 here"
DEEP = "the table loses a tenth of its speed with 1 % more misses; no queue of prefetches gives both (docs/deca.md)"
ROWS = "how 64 rows go through is not said: section 12.2 and this table contradict each other"
SEQUENCES = "15 more sequences cost OPT 21 ms and Llama 14 by the table; what ours take was fitted to Llama's table 1"
WIRES = "logic is cells alone: no wires, of which the crossbar is most, no sizing for 2.5 GHz"
CLOCK = "what CACTI was configured with is not printed; of logic, RTL has no wires, clock tree and glitches"

CAUSES: dict[str, dict[tuple[str, str], str]] = {
    "table2": {("Real", f"Q16_{percent}%"): REAL for percent in (20, 10, 5)},
    "table3": {
        ("area of 56 elements", "total"): WIRES,
        ("area of 56 elements", "queues and output registers"): WIRES,
        ("area of 56 elements", "rest"): WIRES,
        ("power of 56 elements", "total"): CLOCK,
    },
    "table5": {("DECA, degree 15", column): DEEP for column in ("L2 misses", "weight prefetches", "other prefetches")},
    "table6": {
        **{
            (f"{model}, {system}", f"N=64, {scheme}"): ROWS
            for model in ("Llama2-70B", "OPT-66B")
            for system in ("software", "DECA")
            for scheme in ("Q16", "Q4", "Q8_30%")
            if (system, scheme) != ("DECA", "Q16")
        },
        ("OPT-66B, software", "N=16, Q8_30%"): SEQUENCES,
        ("OPT-66B, DECA", "N=16, Q4"): SEQUENCES,
        ("OPT-66B, DECA", "N=16, Q8_30%"): SEQUENCES,
    },
}
