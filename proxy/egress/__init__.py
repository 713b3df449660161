"""Decides which hosts and addresses traffic may go to, and reads DNS messages."""
