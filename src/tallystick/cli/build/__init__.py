"""Tables, pages and figures made of logs."""
