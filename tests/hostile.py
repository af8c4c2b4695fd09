"""Text that wants to be more than text: one list for every place where foreign text is shown. Knows no place.

Every string is of its own kind or a kind of its own place; `ALL` is the same in each run. What a browser must
not run sets `window.__mgpu_hacked`, so that a page can be asked whether anything did.
"""

from __future__ import annotations

from typing import Any

RUN = "window.__mgpu_hacked=1"
TERMINAL = (
    "\x1b[2J\x1b[H",  # clear
    "\x1b]0;a title\x07",
    "\x1b]2;a title\x1b\\",
    "\x1b]52;c;cm0gLXJm\x07",  # the clipboard
    "\x1b]8;;file:///etc/passwd\x07link\x1b]8;;\x07",
    "\x1b]1337;File=inline=1:AAAA\x07",
    "\x1b]4;1;?\x07",
    "\x1b]10;?\x07",  # an answer is typed by the terminal
    "\x1b[6n",
    "\x1b[c",
    "\x1b[>c",
    "\x1b[5n",
    "\x1b[21t",
    "\x1bZ",
    "\x1b[?1049h",
    "\x1b[?25l",
    "\x1b[8mhidden\x1b[0m",
    "\x1b[31mred",
    "\x1b[1;1Hover the first line",
    "\x1b[3Aup",
    "\x1b[1K",
    "\x1bc",  # reset
    "\x1b7\x1b8",
    "\x1b(0lqqk",
    "\x1b[5i",  # print
    "\x1bP$q q\x1b\\",
    "\x1bP1;1|17/ab\x1b\\",
    "\x1b_mgpu;0123456789abcdef;{}\x1b\\",
    "\x1b^private\x1b\\",
    "\x1b[200~pasted\x1b[201~",
    "\x1b]9;4;1;50\x07",
    "\x1b]777;notify;t;b\x07",
    "\x9b2J",  # the same in one character
    "\x9d0;title\x9c",
    "\x90q\x9c",
    "\x84\x85\x8d",
    "\x07\x07",
    "abc\b\b\bxyz",
    "real\rfake",
    "a\x0bb\x0cc",
    "\x0e\x0f",
    "\x7f\x7f",
    "\x00",
    "a\x00b",
    "\x1b",
    "\x1b[",
    "\x1b]",
    *(f"a{chr(code)}b" for code in (*range(0x20), *range(0x7F, 0xA0))),
)
LINES = (
    "one\ntwo",
    "one\r\ntwo",
    "a\n--- Queue ---\nID: AAAAAAAA | User: root",
    "x\n2026-01-01 00:00:00,000 ERROR mgpu.master forged",
    "x\r\nSet-Cookie: a=b",
    "x\r\n\r\n<html>",
    "a\u2028b\u2029c",
    "a\x85b",
    'a\nmgpu_up{node="x"} 1\n# HELP forged',
    'a"} 1\nforged{x="',
)
UNSEEN = (
    *(
        f"a{chr(code)}b"
        for code in (
            *range(0x200B, 0x2010),
            *range(0x202A, 0x202F),
            *range(0x2060, 0x2070),
            0xAD,
            0x61C,
            0x180E,
            0xFEFF,
        )
    ),
    "\u202etxt.exe\u202c",
    "\u2066admin\u2069",
    "a\U000e0041\U000e0042b",
    "\ue000\uffff\ufffe",
    "\u115f\u1160\u3164\uffa0\u2800",
    "\ufe0f\u20e3",
    "e" + "\u0301" * 500,
    "".join(f"{letter}\u0489\u0336\u035c\u0327\u0334\u0353" for letter in "zalgo") * 40,
    "\ud800",
    "a\udfffb",
    "\udc1b[2J",
    "\ud83d",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
)
MARKUP = (
    f"<script>{RUN}</script>",
    f"<img src=x onerror={RUN}>",
    f'"><script>{RUN}</script>',
    f"'><svg/onload={RUN}>",
    f"<svg><script>{RUN}</script></svg>",
    f"<svg><a xlink:href='javascript:{RUN}'><text>x</text></a></svg>",
    f"<svg><animate onbegin={RUN} attributeName=x></svg>",
    f"<math><mi xlink:href='javascript:{RUN}'>x",
    f"<iframe srcdoc='<script>parent.__mgpu_hacked=1</script>'>",  # noqa: F541 - one of a row
    f"<iframe src=javascript:{RUN}>",
    f"<body onload={RUN}>",
    f"<details open ontoggle={RUN}>",
    f"<input autofocus onfocus={RUN}>",
    f"<video><source onerror={RUN}>",
    f"<a href='javascript:{RUN}'>x</a>",
    f"javascript:{RUN}",
    f"java\tscript:{RUN}",
    f"data:text/html,<script>{RUN}</script>",
    f"vbscript:{RUN}",
    f'" onmouseover="{RUN}',
    f"' autofocus onfocus='{RUN}",
    f"` onmouseover=`{RUN}",
    f"</title></style></textarea><img src=x onerror={RUN}>",
    f"--><img src=x onerror={RUN}>",
    f"]]><img src=x onerror={RUN}>",
    "<style>*{display:none}</style>",
    "</style><style>@import 'http://127.0.0.1:9/'",
    "red;background:url(javascript:1)",
    "expression(alert(1))",
    "<base href='http://127.0.0.1:9/'>",
    "<meta http-equiv=refresh content=0>",
    "<form action=/hub/logout><button>x",
    f"<template shadowrootmode=open><img src=x onerror={RUN}>",
    f"<noscript><p title='</noscript><img src=x onerror={RUN}>'>",
    "<!--",
    "<plaintext>",
    "&lt;b&gt;&amp;&#0;&#x1b;",
    "&#x202e;",
    f"\u202etxet <b>bold</b>",  # noqa: F541
    f"[x](javascript:{RUN})",
    f"![x](x) **b** <details open ontoggle={RUN}>",
)
CODE = (
    f"${{{RUN}}}",
    f"{{{{constructor.constructor('{RUN}')()}}}}",
    "{{7*7}}",
    "<%= 7*7 %>",
    "#{7*7}",
    f"'-{RUN}-'",
    f"\\';{RUN}//",
    "{}",
    "{0}",
    "{id}",
    "{job.__class__}",
    "{0.__init__.__globals__}",
    "{:>999999999}",
    "%s%s%s%n",
    "%(name)s",
    "%1 %2 %%",
    "%d",
    "$(reboot)",
    "`reboot`",
    "; reboot",
    "| reboot",
    "$HOME",
    "--help",
    "-rf",
    "../../../../etc/passwd",
    "/etc/passwd\x00.txt",
    "..",
    "~root",
    "[bold]rich[/bold]",
    "[link=file:///etc/passwd]x[/link]",
    ":skull:",
    "__proto__",
    "constructor",
    "toString",
    "null",
    "NaN",
    "-1",
    "1e999",
    "' OR 1=1 --",
    '"; DROP TABLE jobs; --',
    '"',
    "'",
    "\\",
    "\\x1b[2J",
    "\\u001b[2J",
    "\\033]0;x\\007",
)
SHEET = (
    "=1+1",
    "=cmd|' /C calc'!A0",
    '=HYPERLINK("http://127.0.0.1:9/","x")',
    "+1+1",
    "-1+1",
    "@SUM(1+1)",
    "\t=1+1",
    "\r=1+1",
    '"=1+1"',
    'a,"b\nc",d',
    "a;b;c",
)
LONG = (
    "x" * 20_000,
    "\u4e00" * 5_000,
    " " * 5_000 + "end",
    "\x1b[2J" * 5_000,
    "<b>" * 5_000,
    "a\u0301" * 5_000,
    "=" * 5_000,
    ("word " * 2_000) + "\n" + ("word " * 2_000),
)
ALL = (*TERMINAL, *LINES, *UNSEEN, *MARKUP, *CODE, *SHEET, *LONG)


def sendable() -> tuple[str, ...]:
    """Return what can travel as UTF-8 at all."""
    return tuple(text for text in ALL if not any("\ud800" <= char <= "\udfff" for char in text))


def named(count: int, kinds: tuple[str, ...] = ALL, length: int = 190) -> list[str]:
    """Return so many strings, each its own."""
    return [f"{kinds[number % len(kinds)][:length]} {number}" for number in range(count)]


KEPT = frozenset(
    (
        *(
            "type",
            "state",
            "status",
            "level",
            "verdict",
            "role",
            "stream",
            "reason_code",
            "code",
            "seq",
            "version",
            "cursor",
            "next_cursor",
        ),
        *("id", "job_id", "array_id", "address_method", "step"),
    )
)
"""Words of the protocol and names that a reader must know to show anything."""


class Spoiler:
    """Replaces every string of an answer by one of the list, each in its turn."""

    def __init__(self, texts: tuple[str, ...] | list[str]) -> None:
        self.texts = texts
        self._at = 0

    def text(self) -> str:
        """Return the next one."""
        self._at += 1
        return self.texts[self._at % len(self.texts)]

    def spoil(self, value: Any) -> Any:
        """Return an answer with hostile text wherever a string can stand."""
        if isinstance(value, dict):
            return {key: one if key in KEPT else self.spoil(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self.spoil(one) for one in value]
        return self.text() if isinstance(value, str) else value
