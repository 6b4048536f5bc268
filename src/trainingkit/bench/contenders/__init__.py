"""One file per contender of the network bench; a new file with one decorator takes part."""
