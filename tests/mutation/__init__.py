"""Mutation testing of the simulators: every constant changed, one at a time, and the tests run against each change.

A constant that no test notices could be anything. `python -m tests.mutation` prints how many are noticed, and which
are not.
"""
