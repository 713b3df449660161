"""Credentials of which agents hold only placeholders: their file and their sources. Nothing uses it yet."""
