"""Exchanges: one file each."""
