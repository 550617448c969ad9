"""What is in the logs, and what would a restart do? Commands that only read."""
