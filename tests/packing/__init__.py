"""`make wheel` and `make constraints`: what a release is built of and with."""
