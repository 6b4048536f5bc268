"""Where data comes from: one file per kind, each a checked [data] section with `open() -> Corpus`."""
