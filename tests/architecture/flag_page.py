"""The page of the documentation about flags, made from their table: `python -m tests.architecture.flag_page`
prints it.
"""

from __future__ import annotations

from mgpu_jupyter.client.flags import FLAGS, Flag

HEAD = " ".join(
    (
        (
            "# Flags of a request\n\nWritten by `.venv/bin/python -m tests.architecture.flag_page` from "
            "`mgpu_jupyter/client/flags.py`; a test"
        ),
        (
            "compares. The same flags are taken by `mgpu_srun`, `%mgpu_srun`, `%%mgpu_srun`, `mgpu_sbatch`, "
            "`#MGPU` lines of job files and"
        ),
        (
            "*More flags* of the panel, and as keywords by `Client.submit`, `submit_many` and `dry_run`. "
            "Text "
            "means the same everywhere:"
        ),
        '`Client().submit(…, gpu_mem="20G")` is `--gpu-mem 20G`.\n',
    )
)
WHERE = {"line": "", "notebook": "only in notebooks", "shell": "only in shells", "keyword": "only a keyword"}


def page() -> str:
    """Return the text of the page."""
    parts = [HEAD]
    for heading, flags in FLAGS.items():
        rows = [
            f"| {_written(flag)} | {f'`{flag.dest}`' if flag.is_keyword else ''} | {_meaning(flag)} |"
            for flag in flags
        ]
        parts.append(
            "\n".join(
                [
                    f"\n## {heading[0].upper()}{heading[1:]}\n",
                    "| flag | keyword | meaning |",
                    "| --- | --- | --- |",
                    *rows,
                    "",
                ]
            )
        )
    return "".join(parts)


def _written(flag: Flag) -> str:
    first, *others = flag.names or ("",)
    text = f"`{f'{first} {flag.value}'.strip()}`" if first else ""
    return _cell(", ".join([text, *(f"`{name}`" for name in others)]))


def _meaning(flag: Flag) -> str:
    where = "only in notebooks" if flag.field == "outputs" else WHERE.get(flag.only, "")
    is_shown = flag.example in flag.help or flag.example == flag.value or " like " in flag.help
    notes = [flag.help, "" if is_shown else f"like `{flag.example}`", where]
    notes += [] if flag.in_files or flag.only == "shell" else ["not in job files"]
    return _cell("; ".join(filter(None, notes)))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
