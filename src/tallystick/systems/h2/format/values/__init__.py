"""Values of H2 rows: bytes <-> values, and values as the engine prints them."""
