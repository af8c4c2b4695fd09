"""Faults on real processes: `python -m tests.chaos --row N --size small|full [--seed S]`; `make chaos` runs
every row in full.

Each row of the acceptance table is one function in `rows/`. The checker in tests/checker is the judge;
nothing here excuses anything.
"""
