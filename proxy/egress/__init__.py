"""Decides which hosts and addresses traffic may go to; reads and writes DNS messages."""
