"""One self-contained HTML page made from the tables of the pipeline."""
