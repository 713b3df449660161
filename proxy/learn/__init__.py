"""Learns a sandbox profile from what a server was seen to do, and compares profiles."""
