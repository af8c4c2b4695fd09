"""`make fmt`: writes the pages of the reference that are made from the code. `test_reference.py` compares."""

from __future__ import annotations

from tests.docs.reference import FOLDER, PAGES

for name, page in PAGES.items():
    (FOLDER / name).write_text(page())
