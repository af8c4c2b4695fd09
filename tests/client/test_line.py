"""How a magic's line becomes words: as a POSIX shell splits them, with the notebook's variables."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.client.line import read_line, split_line, split_words, variables

NAMESPACE: dict[str, object] = {
    "n": 2,
    "lr": 0.1,
    "path": Path("/data/a b"),
    "text": "two words",
    "i": 7,
    "files": ["a"],
    "_": "history",
}
ENVIRON = {"HOME": "/home/me", "n": "env", "CUDA_VISIBLE_DEVICES": "5", "MGPU_TOKEN": "secret", "RANK": "9"}


def evaluate(expression: str) -> str | None:
    try:
        return str(eval(expression, {}, dict(NAMESPACE)))
    except Exception:
        return None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--gpus 2 -- bash -c 'exit 3'", ["--gpus", "2", "--", "bash", "-c", "exit 3"]),
        ("--gpus $n -- t.py --lr ${lr}x", ["--gpus", "2", "--", "t.py", "--lr", "0.1x"]),
        ('-- cat $path "$text"', ["--", "cat", "/data/a b", "two words"]),
        ("-- echo $HOME", ["--", "echo", "/home/me"]),
        ("-- echo $NOTHING", ["--", "echo", "$NOTHING"]),
        ("-- echo '$HOME' \\$HOME \"\\$HOME\"", ["--", "echo", "$HOME", "$HOME", "$HOME"]),
        (
            "-- bash -c 'for i in 1 2; do echo $i; done'",
            ["--", "bash", "-c", "for i in 1 2; do echo $i; done"],
        ),
        (
            '-- "echo $CUDA_VISIBLE_DEVICES $MGPU_TOKEN $RANK"',
            ["--", "echo $CUDA_VISIBLE_DEVICES $MGPU_TOKEN $RANK"],
        ),
        ("-- echo $files $_ $ $1", ["--", "echo", "$files", "$_", "$", "$1"]),
        ("--gpus {n * 2} --name run-{i}", ["--gpus", "4", "--name", "run-7"]),
        ("--name {nothing} --name '{n}'", ["--name", "{nothing}", "--name", "{n}"]),
        ("-- awk {print} x{n} '{\"lr\":5}'", ["--", "awk", "{print}", "x{n}", '{"lr":5}']),
        ("", []),
        ("a '' \"\"", ["a", "", ""]),
    ],
)
def test_words(line: str, words: list[str]) -> None:
    assert split_line(line, variables(NAMESPACE, ENVIRON), evaluate) == words


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("-- python a.py --lr 0.1", ["python", "a.py", "--lr", "0.1"]),
        ("-- python a.py && python b.py", ["bash", "-lc", "python a.py && python b.py"]),
        ("-- a;b", ["bash", "-lc", "a;b"]),
        ('-- cat $path | wc > "$text" ', ["bash", "-lc", "cat '/data/a b' | wc > \"two words\""]),
        ("-- echo $RANK", ["bash", "-lc", "echo $RANK"]),
        ("-- ls *.py", ["bash", "-lc", "ls *.py"]),
        ("-- ~/run.sh", ["bash", "-lc", "~/run.sh"]),
        ("-- A=1 b", ["bash", "-lc", "A=1 b"]),
        ("-- echo `hostname`", ["bash", "-lc", "echo `hostname`"]),
        ("-- echo $(hostname)", ["bash", "-lc", "echo $(hostname)"]),
        ("-- a\nb", ["bash", "-lc", "a\nb"]),
        ("-- a\n", ["a"]),
        # What is in quotes is text.
        ("-- echo '&&' \"; $RANK $(x)\" \\>", ["echo", "&&", "; $RANK $(x)", ">"]),
        ("-- bash -c 'a; b > c'", ["bash", "-c", "a; b > c"]),
        ("-- python -c print(1)", ["python", "-c", "print(1)"]),
        ("--constraint a&b|!c -- x --lr {lr}", ["x", "--lr", "{lr}"]),
        ("--", []),
    ],
)
def test_a_command_is_its_words_unless_it_needs_a_shell(line: str, command: list[str]) -> None:
    typed = read_line(line, variables(NAMESPACE, ENVIRON))
    assert typed.command(typed.words.index("--") + 1) == command


@pytest.mark.parametrize("written", ["$v", '"$v"'])
def test_a_value_is_one_word_of_the_shell_there_too(written: str) -> None:
    for value in ("two words", "it's", 'a "b"', "$HOME `x` $(y)", "a\\b\\", "; rm -r x", "*"):
        command = read_line(f"-- printf %s {written} | cat", variables({"v": value}, {})).command(1)
        assert (
            subprocess.run(["bash", "-c", command[2]], check=True, capture_output=True, text=True).stdout
            == value
        )


@pytest.mark.parametrize("line", ["echo 'a", 'echo "a', "echo a\\"])
def test_open_quotes_are_one_sentence(line: str) -> None:
    with pytest.raises(InvalidRequest):
        split_words(line)


@given(st.text(alphabet=" \tab'\"\\-={}", max_size=30))
def test_words_are_those_of_a_posix_shell(line: str) -> None:
    try:
        expected = shlex.split(line)
    except ValueError:
        with pytest.raises(InvalidRequest):
            split_words(line)
    else:
        assert split_words(line) == expected
