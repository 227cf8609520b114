"""Clip sampling and augmentation."""
