"""What `interlock doctor` looks at. Nothing here changes anything, and nothing waits without a bound."""
