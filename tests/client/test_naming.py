"""What the job of a cell is called when nobody named it."""

from __future__ import annotations

import pytest

from mgpu_jupyter.client.naming import cell_name

TRAIN = (
    "import matplotlib.pyplot as plt\nfrom net import train\n\nloss = train(model, epochs=3)\nprint(loss)\n"
)

TITLES = {
    "# train the small model\nimport torch\ntrain()": "train the small model",
    "\n\n  # Train the small model.\ntrain()": "Train the small model",
    "## --- Evaluation: ---\nx": "Evaluation",
    "# %% sweep of rates\nx": "sweep of rates",
    "#!/bin/bash\n# nightly export\necho": "nightly export",
    "# " + "long " * 30 + "\nx": "long " * 11 + "long…",
    "# naïve \t\x1b[31m red\u202e\nx": "naïve \ufffd[31m red\ufffd",
    "# train\nx": "train",
}


@pytest.mark.parametrize(("source", "name"), TITLES.items(), ids=TITLES.values())
def test_a_title_comment_names_the_job_wherever_it_comes_from(source: str, name: str) -> None:
    assert (cell_name(source), cell_name(source, "/home/me/try.ipynb", 6)) == (name, name)


NO_TITLES = [
    TRAIN,
    "# import os\nx",
    "# model = Net()\nx",
    "# train(model)\nx",
    "# noqa: E501\nx",
    "# type: ignore\nx",
    "#| export\nx",
    "#!/bin/bash\n#SBATCH --gpus 1\nx",
    "#MGPU --gpus 1\nx",
    "# -*- coding: utf-8 -*-\nx",
    "#!/usr/bin/env python3\nx",
    "# ---------\nx",
    "#\nx",
    "x\n# train the small model",
]


@pytest.mark.parametrize("source", NO_TITLES)
def test_without_a_title_it_is_called_after_notebook_and_number(source: str) -> None:
    assert cell_name(source, "/home/me/try.ipynb", 6) == "try.ipynb [6]"


PLACES = {
    ("try.ipynb", 12): "try.ipynb [12]",
    ("C:\\Users\\me\\try.ipynb", 1): "try.ipynb [1]",
    ("/home/me/Console 1", 3): "Console 1 [3]",
    ("/a/b\udcff\n.ipynb", 2): "b\ufffd .ipynb [2]",
    (f"/a/{'n' * 80}.ipynb", 123): f"{'n' * 53}… [123]",
    ("", 6): "train(...)",
    ("/home/me/try.ipynb", 0): "train(...)",
    ("/home/me/", 6): "train(...)",
}


@pytest.mark.parametrize(("place", "name"), PLACES.items())
def test_what_is_known_of_the_place(place: tuple[str, int], name: str) -> None:
    assert cell_name(TRAIN, *place) == name


CALLS = {
    TRAIN: "train(...)",
    "main()": "main()",
    "import a\ntrainer = a.Trainer(model)\ntrainer.fit(data)\nplt.show()": "trainer.fit(...)",
    "for epoch in range(3):\n    step(epoch)\nprint('done')": "step(...)",
    "with open('x') as file:\n    if file:\n        work(file)": "work(...)",
    "print('GPU')": "print(...)",
    "def train():\n    fit()\n": "def train():",
    "import os\nx = os.environ['A']\n": "x = os.environ['A']",
    "import os\nimport sys": "import os",
    "make()()": "make()()",
    "await fetch(1)": "await fetch(1)",
    "x = (": "x = (",
    "#!/bin/bash\n# noqa\ntrain(1)\n": "train(1)",
    "#!/usr/bin/python3\ntrain(1)\n": "train(...)",
    "# noqa": "an empty cell",
    "a\0b": "a\ufffdb",
    "(" * 100_000: "(" * 59 + "…",
}


@pytest.mark.parametrize(("source", "name"), CALLS.items(), ids=CALLS.values())
def test_where_no_notebook_is_known_it_is_called_after_what_it_calls(source: str, name: str) -> None:
    assert cell_name(source) == name
