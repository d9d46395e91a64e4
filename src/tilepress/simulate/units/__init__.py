"""Units of Anda, Harmonia and their rivals as functions: every bit that they put out, stepped cycle by cycle.

Each file has one unit, and beside it how many `cycles` it takes and which `events` there are, as formulas that the
stepped unit is tested against: whoever simulates an array takes them from here.
"""
