"""Credentials that agents hold only placeholders of: their file, their sources, and what is in force. Nothing uses it yet."""
