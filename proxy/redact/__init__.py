"""Detectors and masking over JSON values and text."""
