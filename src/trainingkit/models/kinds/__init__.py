"""Model kinds: one file each."""
