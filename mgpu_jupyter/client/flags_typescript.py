"""Writes the flags that forms ask for as TypeScript, from the table of flags.

Usage: python -m mgpu_jupyter.client.flags_typescript FILE. `make ui` writes
`labextension/src/api/flags.gen.ts` with it, and a test compares.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import get_args, get_type_hints

from mgpu_jupyter.client.flags import IN_FORMS, Field, Flag

HEAD = """// Generated from the table of flags by `make ui`. Do not edit.
export interface IFlag {
  /** Its keyword. */
  readonly dest: string;
  /** As it is written on a line. */
  readonly name: string;
  readonly help: string;
  readonly label: string;
  readonly control: %s;
  readonly hint: string;
  readonly note: string;
  /** Values with their words; of `switches`, keywords. */
  readonly choices: readonly (readonly [string, string])[];
  /** Whether it is shown before *More* is opened. */
  readonly main: boolean;
  /** Whether it exists only on lines of a notebook. */
  readonly notebook: boolean;
}

export const FLAGS: readonly IFlag[] = [
"""


def typescript() -> str:
    """Return the whole file."""
    controls = " | ".join(f"'{name}'" for name in get_args(get_type_hints(Field)["control"]))
    return HEAD % controls + "".join(_entry(dest, *one) for dest, one in IN_FORMS.items()) + "];\n"


def _entry(dest: str, flag: Flag, field: Field) -> str:
    values = {
        "dest": dest,
        "name": flag.names[0],
        "help": flag.help,
        "label": field.label,
        "control": field.control,
        "hint": field.hint,
        "note": field.note,
        "choices": field.choices,
        "main": field.is_main,
        "notebook": flag.only == "notebook",
    }
    lines = [f"    {name}: {json.dumps(value, ensure_ascii=False)},\n" for name, value in values.items()]
    return f"  {{\n{''.join(lines)}  }},\n"


def main(path: Path) -> None:
    """Write the file."""
    path.write_text(typescript(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
