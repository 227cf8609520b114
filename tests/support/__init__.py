"""Helpers of the tests: small data sets, small runs, reference implementations."""
