"""Settings of the property tests: reproducible by default, more and random ones on request."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("reproducible", deadline=None, derandomize=True, max_examples=60)
settings.register_profile("thorough", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "reproducible"))
