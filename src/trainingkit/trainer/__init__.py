"""What happens in one step? The loop as named phases, for a recipe (`Trainer`) or for somebody's own script (`Kit`)."""
