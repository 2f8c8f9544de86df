"""What every test gets: a Hypothesis that neither surprises nor looks at the clock."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# The same examples in every run: a red test is red for its change. Finding new ones is the soak's work.
settings.register_profile(
    "house", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("soak", settings.get_profile("house"), derandomize=False, max_examples=5_000)
settings.load_profile("house")
