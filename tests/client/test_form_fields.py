"""The fields of the forms, which come from the table of flags."""

from __future__ import annotations

from pathlib import Path

from mgpu_jupyter.client.flags import BY_DEST, IN_FORMS
from mgpu_jupyter.client.flags_typescript import main, typescript

FIELDS = Path(__file__).parents[2] / "labextension/src/api/flags.gen.ts"


def test_the_fields_of_the_sidebar_are_those_of_the_table() -> None:
    """`make ui` writes them anew."""
    assert FIELDS.read_text(encoding="utf-8") == typescript()


def test_every_field_says_what_its_flag_takes() -> None:
    switches = {dest for dest, flag in BY_DEST.items() if not flag.value}
    wrong = {
        dest
        for dest, (flag, field) in IN_FORMS.items()
        if (field.control == "switch" and dest not in switches)
        or (field.control == "switches" and {value for value, _ in field.choices} - {""} - switches)
        or (field.control == "pairs" and not flag.is_many)
        or (field.control in ("choice", "switches")) != bool(field.choices)
        or (field.choices and field.choices[0][0] != "")
    }
    assert wrong == set()
    assert len({field.label for _, field in IN_FORMS.values()}) == len(IN_FORMS)


def test_the_file_is_written(tmp_path: Path) -> None:
    main(tmp_path / "flags.ts")
    assert (tmp_path / "flags.ts").read_text(encoding="utf-8") == typescript()
