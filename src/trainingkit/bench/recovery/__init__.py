"""What does it cost to lose nothing, and how quickly does it come back? Journal and snapshots against none, paired."""
