"""Will it go well tomorrow? Commands for a log that works."""
