"""Words everyone shares: errors, units, run folder, metrics, decisions, logging, registry.

This room imports no other room and never imports torch.
"""
