"""One module per command; each has a `command` that `tallystick.cli` finds by the module's name."""
