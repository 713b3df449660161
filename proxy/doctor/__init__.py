"""The checks of `interlock doctor`. They change nothing but for one recorded call; none waits without a time limit."""
