"""What a runbook tells to type, typed in the real engines."""
