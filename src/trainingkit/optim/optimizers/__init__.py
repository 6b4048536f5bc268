"""Optimizers: one file each."""
