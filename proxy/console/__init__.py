"""The web console: operators see calls as they happen and decide on proposals, in a browser."""
