"""YAML as plain values with their lines. Makes no objects and follows no references outside the text."""

from __future__ import annotations

from typing import Any

import yaml
from yaml.constructor import ConstructorError, SafeConstructor

MAX_CHARS = 1_000_000
MAX_VALUES = 100_000
MAX_DEPTH = 50
Path = tuple[str | int, ...]
_PREFIX = "tag:yaml.org,2002:"


class BadYaml(Exception):
    """What is wrong with the text, and on which line."""

    def __init__(self, line: int, what: str, hint: str) -> None:
        super().__init__(f"line {line}: {what}; {hint}.")
        self.line, self.what, self.hint = line, what, hint


class Lines:
    """The line of each value, by its path of keys and indices."""

    def __init__(self) -> None:
        self._lines: dict[Path, int] = {(): 1}

    def put(self, path: Path, line: int) -> None:
        """Note the line of a value."""
        self._lines[path] = line

    def of(self, path: Path) -> int:
        """Return the line of a value, or of its nearest known parent."""
        while path not in self._lines:
            path = path[:-1]
        return self._lines[path]


def read_yaml(text: str) -> tuple[object, Lines]:
    """Return the document's value and the lines of its parts; None for an empty one."""
    if len(text) > MAX_CHARS:
        raise BadYaml(1, f"the file has more than {MAX_CHARS} characters", "split it or shorten it")
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1 if isinstance(error.position, int) else 1
        raise BadYaml(line, "there is a character that YAML does not allow", "take it out") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise BadYaml(
            mark.line + 1 if mark else 1,
            f"this is no YAML ({error.problem or error.context})",
            _syntax_hint(error),
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadYaml(
            1,
            f"this is no YAML ({type(error).__name__})",
            "compare it with the example in docs/howto/cluster-file.md",
        ) from None
    if len(documents) > 1:
        raise BadYaml(
            documents[1].start_mark.line + 1, "there is a second document", "take out the line with ---"
        )
    reader = _Reader()
    value = reader.plain(documents[0], (), 0) if documents and documents[0] is not None else None
    return value, reader.lines


def _syntax_hint(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or ""
    if "\\t" in problem or "'\\t'" in problem:
        return "indent with blanks, not with tabs"
    if "undefined alias" in problem:
        return "name it with & first, or put quotes around the value"
    if "flow" in str(error.context) or "expected ',' or" in problem:
        return "check brackets, braces and commas"
    if "mapping values are not allowed" in problem:
        return "put quotes around a value with a colon, or check the indentation"
    if "quoted scalar" in str(error.context):
        return "close the quotes"
    return "check the indentation, and that each key has a colon and a blank after it"


class _Reader:
    """Turns nodes into values; counts them, since a few anchors can stand for very many."""

    def __init__(self) -> None:
        self.lines = Lines()
        self._count = 0
        self._constructor = SafeConstructor()

    def plain(self, node: Any, path: Path, depth: int) -> object:
        line = node.start_mark.line + 1
        self.lines.put(path, line)
        self._count += 1
        if self._count > MAX_VALUES or depth > MAX_DEPTH:
            raise BadYaml(line, "there are too many values within each other", "use fewer anchors")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self.plain(one, (*path, index), depth + 1) for index, one in enumerate(node.value)]
        return self._scalar(node, line)

    def _mapping(self, node: yaml.MappingNode, path: Path, depth: int) -> dict[str, object]:
        try:
            self._constructor.flatten_mapping(node)  # the content of <<
        except (ConstructorError, RecursionError):
            raise BadYaml(
                node.start_mark.line + 1, "<< stands for something that is no table", "name a table after it"
            ) from None
        values: dict[str, object] = {}
        own: set[str] = set()  # apart from the content of <<, which may be overridden
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise BadYaml(line, "a key must be a word", "check the indentation, or put quotes around it")
            name = str(key.value)
            if key.start_mark.index >= node.start_mark.index:
                if name in own:
                    raise BadYaml(line, f"{name} is there twice", "leave one out")
                own.add(name)
            values[name] = self.plain(value, (*path, name), depth + 1)
            self.lines.put((*path, name), line)
        return values

    def _scalar(self, node: yaml.ScalarNode, line: int) -> object:
        kind = str(node.tag).removeprefix(_PREFIX)
        make = {
            "null": self._constructor.construct_yaml_null,
            "bool": self._constructor.construct_yaml_bool,
            "int": self._constructor.construct_yaml_int,
            "float": self._constructor.construct_yaml_float,
        }.get(kind)
        if make is None:
            if kind not in ("str", "timestamp", "value"):
                raise BadYaml(line, f"the tag {node.tag} is not known here", "leave it out")
            return str(node.value)
        try:
            value: object = make(node)
        except (ValueError, KeyError, OverflowError):
            raise BadYaml(
                line, f"{str(node.value)[:40]!r} is no {kind}", "write it anew, or put quotes around it"
            ) from None
        return value
