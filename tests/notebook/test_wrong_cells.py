"""Wrong cells are answered by one sentence, without a traceback, and nothing is sent."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError

from tests.notebook.conftest import Shell
from tests.notebook.wrong_cells import WRONG


def test_each_is_answered_by_one_sentence(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for code, _ in WRONG:
        error = shell.run(code).error_in_exec
        assert (type(error), capsys.readouterr()) == (UsageError, ("", f"UsageError: {error}\n"))
        found.append((code, str(error)))
    assert found == list(WRONG)
    assert shell.mock.requests == []
