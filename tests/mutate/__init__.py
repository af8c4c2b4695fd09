"""Small faults planted in the product, one at a time: a test that matters fails for each. `make mutate` runs
it.
"""
