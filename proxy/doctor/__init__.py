"""The checks of `interlock doctor`. They change nothing, and none waits without a time limit."""
