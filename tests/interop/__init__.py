"""The real systems on the other side: they open what we wrote, and we what they wrote."""
