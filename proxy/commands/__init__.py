"""The sub-commands of `interlock`, one Typer app each."""
