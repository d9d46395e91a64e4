"""A library of few cells with round figures: 1 V, fF, ns, nW; so energies are in fJ."""

HEADER = """
library (round) {
  /* a comment with a } and a "quote" */
  time_unit : "1ns";
  voltage_unit : "1V";
  capacitive_load_unit (1, ff);
  leakage_power_unit : "1nW";
  nom_voltage : 1.0;
  lu_table_template (delay) {
    variable_1 : input_net_transition; variable_2 : total_output_net_capacitance;
    index_1 ("0.01, 0.1"); index_2 ("1, 100");
  }
  power_lut_template (grid) {
    variable_1 : input_transition_time; variable_2 : total_output_net_capacitance;
    index_1 ("0.01, 0.03"); index_2 ("0, 10");
  }
  power_lut_template (line) { variable_1 : input_transition_time; index_1 ("0.01, 0.03"); }
  CELLS
}
"""
SUPPLY = """pg_pin (VDD) { pg_type : primary_power; } pg_pin (VSS) { pg_type : primary_ground; }"""
TIMING = """timing () { related_pin : "PIN"; timing_sense : negative_unate;
  cell_rise (delay) { TEN } cell_fall (delay) { TEN } rise_transition (delay) { TEN } fall_transition (delay) { TEN } }
""".replace("TEN", 'values ("0.01, 0.01", \\\n "0.01, 0.01");')
# 2 and 4 fJ at 10 and 30 ps without a load, 1 fJ more at 10 fF; twice that for a fall.
SWITCHING = """internal_power () { related_pin : "PIN"; related_pg_pin : VDD;
  rise_power (grid) { values ("2, 3", "4, 5"); } fall_power (grid) { values ("4, 6", "8, 10"); } }
internal_power () { related_pin : "PIN"; related_pg_pin : VSS;
  rise_power (grid) { values ("70, 70", "70, 70"); } fall_power (grid) { values ("70, 70", "70, 70"); } }
"""
HIDDEN = """internal_power () { WHEN related_pg_pin : VDD;
  rise_power (line) { values ("RISE, RISE"); } fall_power (line) { values ("FALL, FALL"); } }
"""


def hidden(rise, fall, when=""):
    """An input's internal power, fJ of a rise and of a fall, at any slew."""
    condition = f'when : "{when}";' if when else ""
    return HIDDEN.replace("WHEN", condition).replace("RISE", str(rise)).replace("FALL", str(fall))


def gate(name, area, function, pins, powers=SWITCHING, leakage=1):
    """Of inputs with 2 fF; of each, toggles that no output follows take 0.5 fJ where it rises."""
    inputs = "".join(f"pin ({pin}) {{ direction : input; capacitance : 2; {hidden(0.5, 0)} }}\n" for pin in pins)
    arcs = "".join((TIMING + powers).replace("PIN", pin) for pin in pins)
    output = f'pin (Y) {{ direction : output; function : "{function}"; {arcs} }}'
    return f"cell ({name}) {{ area : {area}; cell_leakage_power : {leakage}; {SUPPLY} {inputs} {output} }}\n"


FLOP = f"""
cell (FLOP) {{
  area : 7;
  {SUPPLY}
  leakage_power () {{ when : "Q"; value : 90; related_pg_pin : VDD; }}
  leakage_power () {{ value : 3; related_pg_pin : VDD; }}
  leakage_power () {{ value : 0; related_pg_pin : VSS; }}
  ff (IQ, IQN) {{ clocked_on : "C"; next_state : "D"; }}
  pin (C) {{ direction : input; clock : true; capacitance : 1; {hidden(0.25, 0.75)} }}
  pin (D) {{ direction : input; capacitance : 3; {hidden(1, 2, "!Q")} {hidden(4, 8, "Q")} }}
  pin (Q) {{ direction : output; function : "IQ"; {SWITCHING.replace("PIN", "C")} }}
}}
"""
# A pulse takes 2 and 4 fJ at 10 ps, as a rise and a fall of a gate do; edges that it stops 0.125 and 0.375.
CLOCK_GATE = f"""
cell (CKGATE) {{
  area : 1;
  {SUPPLY}
  cell_leakage_power : 2;
  clock_gating_integrated_cell : latch_posedge_precontrol;
  statetable ("C EN TE", "S") {{ table : "L L L : - : L, L L H : - : H, L H - : - : H, H - - : - : N"; }}
  pin (S) {{ direction : internal; internal_node : "S"; }}
  pin (C) {{ clock_gate_clock_pin : true; direction : input; clock : true; capacitance : 4;
    {hidden(0.125, 0.375, "!EN * !TE")} {hidden(50, 50, "EN")} }}
  pin (EN) {{ clock_gate_enable_pin : true; direction : input; capacitance : 5; {hidden(0.5, 1.5)} }}
  pin (TE) {{ clock_gate_test_pin : true; direction : input; capacitance : 6; }}
  pin (G) {{ clock_gate_out_pin : true; direction : output; state_function : "C & S"; {SWITCHING.replace("PIN", "C")} }}
}}
"""
GATES = (
    gate("INV", 1, "!A", "A")
    + gate("NAND", 2, "!(A&B)", "AB")
    + gate("NOR", 2, "(A+B)'", "AB")
    + gate("XOR", 3, "A^B", "AB")
    + gate("NAND3", 3, "!(A B C)", "ABC")
    + gate("BUF", 2, "A", "A")
)


def library_text(cells=GATES + FLOP):
    return HEADER.replace("CELLS", cells)
