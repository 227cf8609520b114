"""Settings that all tests share."""

from hypothesis import settings

# No deadline, because no test may depend on the machine's speed; derandomised, so that two runs test the same.
settings.register_profile("stillmotion", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("stillmotion")
