"""How Hypothesis runs: in the gate the same examples each time, so that a change is judged by itself and not
by luck.

`make explore` (or HYPOTHESIS_PROFILE=explore) looks at new examples; what it finds becomes a test of its own.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine, not about the code.
settings.register_profile(
    "gate", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "explore", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))
