"""What is due, and how is it done? Commands that make something, or print what is to be typed."""
