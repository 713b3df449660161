"""Tells people that something waits for them: webhooks, chat, e-mail, ntfy. No decision depends on it."""
